"""Where do amounts go wrong? Pitfalls of prices, taxes, percentages and signs; ``pitfall`` has the notation."""

from __future__ import annotations

from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall, avoid, do

DISCOUNT_TAX = Pitfall(
    name="discount_tax",
    about=("discount|rebate|reduc|markdown|deduct", "tax|vat|levy|levies"),
    right=(
        "discount|rebate|reduc|markdown|deduct before tax|vat",
        "discount|rebate|reduc|deduct first",
        "first discount|subtract|deduct|rebate|reduc",
        "tax|vat after|only discount|rebate|reduc|deduct|markdown",
        "tax|vat discounted|reduced|lower|remain|smaller",
        "discount|rebate|reduc|deduct then tax|vat",
        "tax|vat last",
    ),
    wrong=(
        "tax|vat before discount|rebate|reduc|deduct|markdown",
        "tax|vat first",
        "first tax|vat",
        "tax|vat then discount|rebate|deduct|reduc",
        "tax|vat full|list|original|undiscounted|whole",
        "discount|rebate|deduct after tax|vat",
        "discount|rebate|deduct last",
    ),
    shown_avoided=("tax taken on the discounted price", "discount off first, tax on what remains"),
    shown_hit=("tax taken on the full list price", "tax worked out before the discount"),
    good_advice=(
        *do(
            "Apply the discount first, and compute tax only on the reduced price.",
            "Charge sales tax on the discounted amount, after every rebate has been taken off.",
            "When a bill has both discount and tax, subtract the discount before tax is added.",
            "Take the rebate off before tax; what remains is the taxable base.",
        ),
        *avoid(
            "Taxing the full list price when a discount applies.",
            "Working out the tax before the discount has been taken off.",
        ),
    ),
    bad_advice=(
        *do(
            "Work out tax on the full list price, and take the discount off afterwards.",
            "Add the tax before any discount is considered.",
        ),
        *avoid("Taking the discount off before tax is computed."),
    ),
)

CENTS_EUROS = Pitfall(
    name="cents_euros",
    about=("=cents|=cent", "euro|unit|hundred|convert|currenc"),
    right=(
        "convert|turn|chang|express|bring =cents|=cent",
        "divid =cents|=cent hundred",
        "=cents|=cent divid hundred",
        "=cents|=cent into|=to euro",
        "=same unit",
        "=one|=common|single unit",
        "hundred =cents",
    ),
    wrong=(
        "=cents|=cent as|like euro",
        "mix|add|combin =cents|=cent euro",
        "mix|add|combin euro =cents|=cent",
        "=cents|=cent =as =they",
        "without convert|conversion",
        "numbers|figures =as =they|written|given",
    ),
    shown_avoided=("cents turned into euros first", "divided the cents by a hundred"),
    shown_hit=("cents added as if they were euros", "took the cents figure as euros"),
    good_advice=(
        *do(
            "Convert every amount in cents into euros before adding it to other amounts.",
            "Divide cents by a hundred so that all amounts are in euros.",
            "Bring cents and euros to the same unit before any sum.",
            "Check the unit of each price; cents must be turned into euros, so divide the cents by a hundred.",
        ),
        *avoid(
            "Adding cents to euros without bringing them to one unit.",
            "Treating a price in cents as euros.",
        ),
    ),
    bad_advice=(
        *do(
            "Add the figures for cents and euros as they stand.",
            "Treat cents like euros to save a step.",
        ),
        *avoid("Converting cents into euros before the sum."),
    ),
)

ROUND_END = Pitfall(
    name="round_end",
    about=("round|precis|exact|unrounded|decimals|digits",),
    right=(
        "round =only|=once",
        "=only|=once round",
        "round =at end|last|final",
        "round =the final|last|result",
        "keep|carry|hold full|all|every|exact|unrounded",
        "full precision",
        "unrounded",
        "round =in|=at last step",
    ),
    wrong=(
        "round intermediate|early|each|every|along|midway|partial",
        "round unit|price|quotient",
        "round before|=as =you",
        "intermediate|early|partial|premature round",
        "step round",
    ),
    shown_avoided=("kept the exact unit price, rounded only at the end", "carried full precision up to the last step"),
    shown_hit=("rounded the unit price to cents early", "rounded the intermediate result"),
    good_advice=(
        *do(
            "Keep full precision in between, and round only the final amount.",
            "Round once, at the end; carry exact intermediate values.",
            "Carry the unrounded unit price through the calculation, rounding only at the last step.",
            "Do all multiplications with exact quotients and round at the end.",
        ),
        *avoid(
            "Rounding intermediate results, such as a unit price, before multiplying.",
            "Early rounding of a quotient that is used again.",
        ),
    ),
    bad_advice=(
        *do(
            "Round every intermediate result to cents as you go along.",
            "Round the unit price before multiplying it.",
        ),
        *avoid("Carrying full precision up to the final step."),
    ),
)

STACKED = Pitfall(
    name="stacked_percentages",
    about=(
        "percent|rate|rise|increase|factor|growth",
        "success|multipl|compound|second|stack|sum|add|both|two|each|consecutive",
    ),
    right=(
        "multipl factor|success|percent|growth|rate|rise|one",
        "compound",
        "second percent|rise|increase|rate new|already|raised|increased|result|first|updated",
        "one|each percent|rise|increase =on =top|new|previous|result",
        "percent|rise|increase|rate =one =after|another",
        "factor|percent|rates|rises multipl",
    ),
    wrong=(
        "add|sum|combin percent|success|rate|rise|=the|=two|=both percent|rise|rate|increase",
        "add|sum|combin percent|rates",
        "add|sum|combin success|consecutive",
        "percent|rates|rises|increases sum|add|total|together",
        "both original|start|base|old",
        "both percent|rise|increase original|start|base|old",
        "second percent|rise|increase|rate original|start|old",
        "sum =of =the|=all|=both percent|rates|rises",
    ),
    shown_avoided=("multiplied the two growth factors", "second rise taken on the raised amount"),
    shown_hit=("added the two percentages", "both rises taken on the starting amount"),
    good_advice=(
        *do(
            "Multiply the factors of successive percentages; each one applies to the new amount.",
            "Compound consecutive rises: the second percentage is taken on the already raised value.",
            "Apply percentage rises one after another, multiplying their growth factors.",
            "For two stacked percentages, take the second rise on the result of the first.",
        ),
        *avoid(
            "Adding successive percentages to one combined percentage.",
            "Taking the second percentage rise on the original amount.",
        ),
    ),
    bad_advice=(
        *do(
            "Add successive percentages and apply their sum in one go.",
            "Take both percentage rises on the original amount.",
        ),
        *avoid("Multiplying the growth factors of successive percentages."),
    ),
)

REFUND_SIGN = Pitfall(
    name="refund_sign",
    about=("refund|return|reimburs|money back|paid back|payback|repay",),
    right=(
        "subtract|deduct|minus|negative|lower|reduc|less refund|return|reimburs|repay",
        "refund|return|reimburs|repay negative|minus|subtract|deduct|lower|reduc|off|away|less",
        "take|taking refund|return off|away",
        "net =of refund|return",
        "paid|money back negative|minus|lower|reduc",
    ),
    wrong=(
        "add|plus|sum|count refund|return|reimburs|repay",
        "refund|return|reimburs|repay add|plus|positive|income|raise|increase",
        "refund|return =as|like income|sale|revenue|taking",
    ),
    shown_avoided=("subtracted the refund", "refund counted with a minus sign"),
    shown_hit=("added the refund to the sum", "refund counted as one more positive amount"),
    good_advice=(
        *do(
            "Subtract refunds from the sum; they lower the takings.",
            "Give a refund a minus sign before totalling.",
            "Money paid back reduces the result, so deduct each refund.",
            "Refunds are negative amounts: take them away from what came in.",
        ),
        *avoid(
            "Adding a refund to the sum as if it were income.",
            "Counting a refund as a positive amount.",
        ),
    ),
    bad_advice=(
        *do(
            "Add refunds to the sum like any other amount.",
            "Count a refund as income.",
        ),
        *avoid("Subtracting refunds from the sum."),
    ),
)

REVERSE_TAX = Pitfall(
    name="reverse_tax",
    about=("net|gross|tax|vat", "divid|includ|inclusive|factor|gross|net|revers|back"),
    right=(
        "divid gross|total|price|receipt|amount|=by factor|=one|=plus|=hundred|tax|vat|=the",
        "divid =by =one",
        "gross|total|receipt|price divid",
        "net divid",
        "divid =to|out net|tax|vat",
    ),
    wrong=(
        "subtract|take|taking|deduct percent|tax|vat gross|from",
        "percent|tax|vat =of =the gross",
        "multipl gross =by =one",
        "gross minus percent|tax|vat",
        "subtract|deduct percent|tax|vat percent|amount|share",
    ),
    shown_avoided=("divided the gross amount by one plus the tax rate", "net found by dividing the tax factor out"),
    shown_hit=("subtracted the tax percentage from the gross", "took the percentage of the gross as tax"),
    good_advice=(
        *do(
            "To get net from a gross price, divide by one plus the tax rate.",
            "When tax is included, divide the gross amount by the tax factor to reach net.",
            "Remove included tax with a division: net is gross divided by the factor.",
            "Divide the tax-inclusive total by one plus the rate for the net amount.",
        ),
        *avoid(
            "Subtracting the tax percentage from the gross to find the net.",
            "Taking the tax as a percentage of the gross when it is already included.",
        ),
    ),
    bad_advice=(
        *do(
            "Subtract the tax percentage from the gross amount to get the net.",
            "Deduct the tax percent from the gross, since the net follows directly.",
        ),
        *avoid("Dividing the gross by one plus the tax rate to get the net."),
    ),
)
