"""Which pitfalls does the ``powl`` world hold? Five ways to give a process model the wrong structure; see ``pitfall``."""

from __future__ import annotations

from typing import Final

from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall, avoid, do

ANY_ORDER = Pitfall(
    name="any_order",
    about=(
        "=any|either|=no|open|free|same|while|independ|simultan|concurren|whichever|matter",
        "parallel|sequen|order|concurren|=after|=behind",
    ),
    right=(
        "use|using|choos|take|prefer|write|want|mean parallel",
        "parallel =for|around|when|where|whenever",
        "under|=as|with|into|inside|=in|=by|=to|=is parallel",
        "order|time|matter parallel",
    ),
    wrong=(
        "order|time|matter =as|=in|into|under|=is sequence|chain|row",
        "sequence =for|of|when|where|whenever",
        "write|use|using|choos sequence",
        "=one after|behind another|other",
        "sort|fix|chain order",
    ),
    shown_avoided=("put what has no fixed order side by side", "let the steps of any order run in parallel"),
    shown_hit=("put what has no fixed order one after another", "chained the steps in the order of the text"),
    good_advice=(
        *do(
            "Put steps that may happen in any order under PARALLEL.",
            "Use PARALLEL for steps that run at the same time or in either order.",
            "When the text leaves the order of some steps open, join them with PARALLEL.",
            "Read 'while' and 'at the same time' as PARALLEL.",
        ),
        *avoid(
            "Writing a SEQUENCE for steps that may happen in any order.",
            "Chaining steps one after another where the text gives them no order.",
        ),
    ),
    bad_advice=(
        *do(
            "Write steps of any order as a SEQUENCE, just as the text names them.",
            "List steps that run at the same time one after another.",
        ),
        *avoid("Using PARALLEL for steps that may happen in any order."),
    ),
)

OPTIONAL_STEP = Pitfall(
    name="optional_step",
    about=("silent|optional|skip|condition|only|some", "silent|xor|choice|branch|step|activit|skip|plain|member"),
    right=(
        "silent =as|branch|alternativ|child|leaf|partner|option|twin",
        "xor|choice =of|with|between|beside step|activit silent",
        "xor|choice beside|with|=and|next silent",
        "beside|add|pair|=and silent",
    ),
    wrong=(
        "optional|conditional|skipp step|activit =as|like|=in|into|among plain|ordinary|normal|mandatory|every|usual",
        "optional|conditional step alone|always",
        "some|only case plain|ordinary|normal|mandatory|always",
        "skipp plain|ordinary|mandatory|always",
    ),
    shown_avoided=("gave the optional step a silent alternative", "let the step that can be skipped be skipped"),
    shown_hit=("wrote the optional step as an ordinary one", "gave no way around the step that can be skipped"),
    good_advice=(
        *do(
            "Model an optional step as XOR of the step and SILENT.",
            "When a step happens only in some cases, put it into XOR beside a SILENT branch.",
            "Give every step that may be missing a SILENT alternative.",
            "Write 'only if' as a choice between the step and SILENT.",
        ),
        *avoid(
            "Writing an optional step as a plain member of the SEQUENCE.",
            "Leaving out the SILENT branch beside a step that can be skipped.",
        ),
    ),
    bad_advice=(
        *do(
            "Write an optional step as a plain member of the SEQUENCE.",
            "Leave out the SILENT branch of a step that can be skipped.",
        ),
        *avoid("Adding a SILENT branch beside an optional step."),
    ),
)

REWORK_LOOP = Pitfall(
    name="rework_loop",
    about=(
        "loop|repeat|repetition|rework|again|redo|back|correct",
        "loop|redo|repeat|repetition|rework|again|back|once|single",
    ),
    right=(
        "use|using|choos|take|write|model|want|mean loop",
        "loop =with|whose|around|for|when|where|whenever",
        "child|part|half =of loop",
        "redo|second|first part|child|half",
        "into|inside|under|=as|=is loop",
    ),
    wrong=(
        "repeat|repetition|rework|correct|redo =as|like|into optional|single|=one|once|plain",
        "rework|correct|repetition|repeat once|single",
        "once =is enough|suffic",
        "unroll|flatten loop",
        "optional|single|plain step =for rework|repeat|correct",
    ),
    shown_avoided=(
        "led the rework back to what is repeated",
        "wrapped what is repeated and its correction into a loop",
    ),
    shown_hit=("let the rework happen once, with no way back", "wrote the repetition as a single pass"),
    good_advice=(
        *do(
            "Model a repetition as LOOP with the work first and the correction as redo part.",
            "When something is repeated until it is right, use LOOP around it.",
            "Put the steps that are done again into the first child of LOOP, and the correction into the second child.",
            "Read 'as long as' and 'until' as LOOP, with the repeated work as its first child.",
        ),
        *avoid(
            "Writing a repeated correction as an optional step that happens once.",
            "Modelling rework as a single pass that never comes back.",
        ),
    ),
    bad_advice=(
        *do(
            "Write a repeated correction as an optional step that happens once.",
            "Model rework as a single pass; going back is implied.",
        ),
        *avoid("Using LOOP for work that is repeated."),
    ),
)

SHARED_END = Pitfall(
    name="shared_end",
    about=(
        "branch|choice|xor|alternativ|outcome|case|join",
        "after|behind|outside|follow|common|shared|final|last|next|before|inside|into|within",
    ),
    right=(
        "after|behind|outside|follow|below xor|choice|branch|alternativ",
        "clos|end|finish xor|choice before",
        "join branch|alternativ before",
        "shared|common|final|last|next step|activit once|outside|after|behind",
    ),
    wrong=(
        "=in|inside|into|within|=to =one|last|single|first branch|alternativ|outcome|case",
        "=only|just =one|last branch|alternativ",
        "step|activit =in|inside|into|within branch",
        "late branch",
    ),
    shown_avoided=("put the shared step behind the choice", "closed the choice before the step that all cases share"),
    shown_hit=("left the shared step inside the last branch", "kept the step of all cases within one branch"),
    good_advice=(
        *do(
            "Put a step that follows every outcome behind the XOR, not into one of its branches.",
            "Close the choice before a step that is common to all cases.",
            "When the text says 'in either case', place the next step after the choice.",
            "Write a shared final step once, outside the branches.",
        ),
        *avoid(
            "Putting a shared final step inside one branch of the choice.",
            "Ending the choice too late, so that only one branch reaches the last step.",
        ),
    ),
    bad_advice=(
        *do(
            "Put the final step inside the last branch of the choice.",
            "Keep a shared step within one branch.",
        ),
        *avoid("Placing a shared step after the choice."),
    ),
)

ONLY_SOME_WAIT = Pitfall(
    name="only_some_wait",
    about=("partial_order|arrow|partial|depend|wait|need", "partial_order|arrow|partial|parallel|wait|depend"),
    right=(
        "use|using|choos|take|write|want|mean partial_order|partial",
        "partial_order|partial =for|when|where|whenever|with|=and",
        "arrow =of|=in|=to partial_order|partial",
        "arrow =for|from|between|wherever|each|every",
        "draw|add|give|set arrow",
    ),
    wrong=(
        "parallel although|though|when|where|while|even wait|depend|need",
        "wait|depend|need step|task|work =under|=as|into|with parallel",
        "wait|depend|need =under|=as|into|with parallel",
        "parallel =is enough|suffic",
    ),
    shown_avoided=("drew an arrow for each step that waits", "kept who waits for whom as a partial order"),
    shown_hit=("dropped who waits for whom", "let the steps that wait run beside the others"),
    good_advice=(
        *do(
            "Use PARTIAL_ORDER when a step waits for some of the others only, and draw an arrow for each wait.",
            "Add an arrow to PARTIAL_ORDER for every step that needs another one to be finished.",
            "Read 'as soon as' as an arrow of PARTIAL_ORDER from the earlier step to the later.",
            "Where steps depend on each other only in part, use PARTIAL_ORDER with its arrows.",
        ),
        *avoid(
            "Joining steps with PARALLEL although one waits for another.",
            "Forgetting the arrows of PARTIAL_ORDER between steps that depend on each other.",
        ),
    ),
    bad_advice=(
        *do(
            "Join steps with PARALLEL even where one waits for another.",
            "Skip the arrows of PARTIAL_ORDER; steps that wait sort themselves out.",
        ),
        *avoid("Using PARTIAL_ORDER when a step waits for others."),
    ),
)

POWL_PITFALLS: Final = (ANY_ORDER, OPTIONAL_STEP, REWORK_LOOP, SHARED_END, ONLY_SOME_WAIT)
