"""Where does counting go wrong? Pitfalls of days, hours, people and posts; ``pitfall`` has the notation."""

from __future__ import annotations

from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall, avoid, do

INCLUSIVE_DAYS = Pitfall(
    name="inclusive_days",
    about=("day|date|night|period|rental|stay", "both|inclusi|first|last|end|start|add|plus|differ|subtract|count"),
    right=(
        "count both",
        "inclu both|first|last|start|end",
        "both inclusi|count|inclu",
        "first day last day count|inclu",
        "first and last count|inclu",
        "add|plus one day",
        "add|plus one differ|subtract",
        "differ|subtract|gap plus|add one",
        "count inclusi",
        "count first|last day",
        "day inclusi",
    ),
    wrong=(
        "subtract|differ =the|=two|=both|date|day date|day",
        "=plain|bare|mere|simpl differ|subtract",
        "count night",
        "only =one =end|=ends",
        "drop|exclud|leav|discard first|last|start|end",
    ),
    shown_avoided=("counted both the first and the last day", "difference of the dates plus one day"),
    shown_hit=("took the plain difference of the dates", "left the first day out of the count"),
    good_advice=(
        *do(
            "Count both the first and the last day when a period includes its ends.",
            "For inclusive dates, add one day to the difference of the dates.",
            "Day counts are inclusive here: the start day and the end day both count.",
            "After finding the gap between two inclusive dates, always add one day.",
        ),
        *avoid(
            "Using the plain difference of two dates when both days are included in the rental.",
            "Leaving the first day out when a period counts its start and end.",
        ),
    ),
    bad_advice=(
        *do(
            "Subtract the first date from the last date to find the days; count no extra day.",
            "Count nights rather than days when a period is given.",
        ),
        *avoid("Counting both the first and the last day of a period."),
    ),
)

HOURS_MINUTES = Pitfall(
    name="hours_minutes",
    about=("minute|hour", "sixt|decimal|fraction|convert|hundred|part|point|divid|share|turn"),
    right=(
        "divid|over|fraction|share|part|convert sixt",
        "minute fraction|share|part hour",
        "convert|turn minute hour|decimal|fraction",
        "convert|turn hour minute",
        "sixt minute",
        "fraction|share|part =of =an hour",
    ),
    wrong=(
        "minute decimal|digit|part =places|=digits|point",
        "minute behind|after decimal|point|dot",
        "divid|over|part|fraction hundred",
        "hundred minute",
        "hundred part",
    ),
    shown_avoided=("minutes divided by sixty", "minutes turned into a fraction of an hour"),
    shown_hit=("minutes written as decimal places", "minutes put behind the decimal point"),
    good_advice=(
        *do(
            "Convert minutes into hours by dividing by sixty before multiplying with a wage.",
            "Treat minutes as a fraction of an hour: divide them by sixty.",
            "Turn hours and minutes into decimal hours with sixty minutes to the hour.",
            "An hour has sixty minutes, so convert the minutes before any multiplication.",
        ),
        *avoid(
            "Writing minutes behind the decimal point as if an hour had a hundred parts.",
            "Reading minutes as decimal digits of an hour.",
        ),
    ),
    bad_advice=(
        *do(
            "Write the minutes behind the decimal point of the hours.",
            "Divide minutes by one hundred to get parts of an hour.",
        ),
        *avoid("Converting minutes to hours with a division by sixty."),
    ),
)

PER_PERSON = Pitfall(
    name="per_person",
    about=("person|everyone|head|share|split|member|participant|people", "total|divid|split|share|per|group|whole"),
    right=(
        "divid =by|between|among|number|total|sum|whole",
        "split|share|divid =the|=total|total|whole|bill|cost|sum|evenly|equally",
        "=per person|head|member",
        "total|sum|cost divid",
        "amount =for|=of one|single|each person|member|participant",
    ),
    wrong=(
        "state|give|report|answer|return total|whole|sum|overall",
        "total|whole|sum =for =the|=whole|whole|=everyone group|=everyone|team",
        "stop|end =at|with total|sum",
        "leave total|sum undivided",
        "total =as answer",
    ),
    shown_avoided=("divided the total by the number of people", "split the sum so that it is per person"),
    shown_hit=("gave the total for the whole group", "stopped at the sum for everyone"),
    good_advice=(
        *do(
            "If the question asks for each person, divide the total by the number of people.",
            "Split the total evenly when a share per person is wanted.",
            "Check whether one share or the total is asked for; a cost per person needs a division by the group size.",
            "Finish with the amount per head: divide the whole bill among all members.",
        ),
        *avoid(
            "Giving the total for the whole group when each person's share is asked.",
            "Reporting the total where the question wants one person's share.",
        ),
    ),
    bad_advice=(
        *do(
            "Report the total for the whole group even if a share is asked.",
            "Always state the total as the answer, whoever shares it.",
        ),
        *avoid("Dividing the total by the number of people."),
    ),
)

FENCE_POSTS = Pitfall(
    name="fence_posts",
    about=("post|fence|gap|pole|interval|marker|spac", "gap|interval|one|end|space|spacing|section|more"),
    right=(
        "one more post|pole|than",
        "=one =more",
        "add|plus one =to|post|pole|gap|interval|section|for",
        "gap|interval|section plus|add|=and one",
        "post|pole =at|both =both|=each|end",
        "extra post|pole",
        "start|end|first post|pole =too|count|inclu|need|extra",
        "exceed|outnumber gap|interval|section",
    ),
    wrong=(
        "post|pole =as =many gap|interval|section",
        "=as =many post|pole =as gap|interval|section",
        "gap|interval|section =as number|post|pole",
        "gap|interval|section =for post|pole",
        "post|pole equal|same gap|interval|section",
        "divi length =by gap|spac =and|=to =stop|=get post|stop|count",
        "number =of gap|interval|section =for|=is|equal|=as",
        "forget|omit|skip post|pole =at|end|start|last",
    ),
    shown_avoided=("one post more than there are gaps", "counted the gaps plus one end post"),
    shown_hit=("took as many posts as gaps", "used the number of gaps as the posts"),
    good_advice=(
        *do(
            "A row with posts at both ends has one more post than gaps.",
            "Count the gaps, then add one post for the end.",
            "The posts outnumber the gaps by one: length divided by spacing, plus one.",
            "For evenly spaced posts add one to the number of intervals.",
        ),
        *avoid(
            "Taking as many posts as gaps between them.",
            "Using the number of gaps as the number of posts.",
        ),
    ),
    bad_advice=(
        *do(
            "Use as many posts as there are gaps.",
            "Take the number of gaps for the number of posts; the end needs nothing.",
        ),
        *avoid("Adding one post for the end of a row of gaps."),
    ),
)
