"""Which pitfalls does the ``ledger-tools`` world hold? Five ways to misread the books; see ``pitfall``."""

from __future__ import annotations

from typing import Final

from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall, avoid, do

BOOKING_RATE = Pitfall(
    name="booking_rate",
    about=("rate|exchange|convert|conversion|currenc", "day|date|today|current|latest|book"),
    right=(
        "rate =of|for|from book|entry|posting|day",
        "rate =of =the date|day",
        "date|day =on =which book",
        "book day|date rate",
        "book rate",
        "rate =on =the day|date book",
        "rate day|date book",
        "date|day =of book",
        "histor rate",
    ),
    wrong=(
        "today rate",
        "rate =of|for|from today",
        "current|latest|newest|present rate",
        "rate today|current|latest",
        "convert today",
    ),
    shown_avoided=("looked up the rate of the booking day", "converted at the rate of the day it was booked"),
    shown_hit=("looked up the rate of today", "converted at today's rate"),
    good_advice=(
        *do(
            "Look up the exchange rate for the booking day and convert with that.",
            "Convert foreign amounts at the rate of the day on which they were booked.",
            "Pass the date of booking to the exchange rate tool.",
            "The house converts with the booking date's rate, so ask for the rate of that day.",
        ),
        *avoid(
            "Converting with today's exchange rate.",
            "Asking for the current rate when an amount was booked on another day.",
        ),
    ),
    bad_advice=(
        *do(
            "Convert every amount with today's exchange rate.",
            "Ask for the latest exchange rate, whatever the date of the entry.",
        ),
        *avoid("Using the exchange rate of the booking day."),
    ),
)

FEE_ENTRY = Pitfall(
    name="fee_entry",
    about=("fee|fees|charge",),
    right=(
        "inclu|add|count|sum|keep|cover fee|charge",
        "fee|charge belong|count|inclu|owed|part|added|too|well",
        "fee|charge =are|=is part|owed",
        "invoices =and|plus|with fee|charge",
        "along|together with fee|charge",
    ),
    wrong=(
        "=only|just invoice",
        "exclud|drop|leav|skip|omit|ignor|remov|discard fee|charge",
        "invoices alone|only",
        "fee|charge =out|aside|separate",
        "set|put fee|charge aside",
    ),
    shown_avoided=("included the fee entry", "added the fee to the invoices"),
    shown_hit=("added only the invoices, no fee", "set the fee entry aside"),
    good_advice=(
        *do(
            "Include fee entries in the balance; they are owed like invoices.",
            "Add fees together with the invoices of an account.",
            "Count every fee entry as part of what the customer owes.",
            "Go through the entries again and add the fee to the sum.",
        ),
        *avoid(
            "Adding up only the invoices while a fee entry stands in the account.",
            "Leaving fee entries out of a balance.",
        ),
    ),
    bad_advice=(
        *do(
            "Add only the invoices and set each fee aside.",
            "Leave fees out of the balance.",
        ),
        *avoid("Including fee entries in the balance."),
    ),
)

CREDIT_SIGN = Pitfall(
    name="credit_sign",
    about=("credit",),
    right=(
        "subtract|deduct|minus|negative|lower|reduc|less credit",
        "credit negative|minus|subtract|deduct|lower|reduc|off|away|less",
        "take|taking credit off|away",
        "minus sign before credit",
    ),
    wrong=(
        "add|plus|sum|count credit",
        "credit add|plus|positive|raise|increase",
        "credit like|as invoice|income|positive|=they",
        "all positive",
    ),
    shown_avoided=("credit note taken off with a minus sign", "subtracted the credit note"),
    shown_hit=("added the credit note as a positive amount", "credit note summed like an invoice"),
    good_advice=(
        *do(
            "Give credit notes a minus sign before adding up the entries.",
            "Subtract credit notes; they lower what a customer owes.",
            "A credit note reduces the balance, so pass it as a negative value.",
            "Deduct every credit note from the invoices.",
        ),
        *avoid(
            "Adding a credit note as if it were an invoice.",
            "Summing credit notes as positive amounts.",
        ),
    ),
    bad_advice=(
        *do(
            "Add credit notes like invoices.",
            "Treat a credit note as a positive amount.",
        ),
        *avoid("Subtracting credit notes from the balance."),
    ),
)

EVERY_ACCOUNT = Pitfall(
    name="every_account",
    about=("account",),
    right=(
        "all|every|each|both =the|=of|=their|customer|account account",
        "all|every|each|both account",
        "account each|every|all",
        "entries|ledger =of|for all|every|each",
        "complete|whole|full list =of account",
        "remaining|other account",
    ),
    wrong=(
        "=first|=one|main|single account =only|alone|suffic|enough",
        "=only|just =the|=one|=first|main account|first",
        "=the first|main account",
        "=one account",
        "account enough|suffic",
        "other account",
    ),
    shown_avoided=("asked for every account of the customer", "fetched the entries of all accounts"),
    shown_hit=("asked for the first account only", "fetched the entries of one account"),
    good_advice=(
        *do(
            "Fetch the entries of every account that the customer has.",
            "Ask for all accounts of a customer, and look into each of them.",
            "A customer may hold several accounts: sum over all accounts.",
            "Before adding up, check that each account on the list was queried.",
        ),
        *avoid(
            "Stopping at the first account of a customer.",
            "Querying only one account when the list names several.",
        ),
    ),
    bad_advice=(
        *do(
            "Look at the first account only.",
            "Query the main account; it is enough.",
        ),
        *avoid("Fetching entries from every account of a customer."),
    ),
)

VOID_ENTRIES = Pitfall(
    name="void_entries",
    about=("void|cancel|status|invalid|booked",),
    right=(
        "skip|ignor|drop|exclud|omit|leav|leaveout|discard|remov|filter void|cancel|invalid|entries|=any|every",
        "void|cancel|invalid skip|ignor|drop|exclud|omit|leaveout|discard|nothing",
        "void =not =count",
        "=only|just booked",
        "booked =only|entries",
        "check|look|read =the|=each|every|=at|entry|entries status",
    ),
    wrong=(
        "inclu|add|count|keep|sum void|cancel|invalid",
        "void|cancel|invalid count|inclu|added|like|too",
        "ignor|skip|disregard status",
        "whatever status",
        "regardless status|void",
    ),
    shown_avoided=("left void entries out", "took booked entries only"),
    shown_hit=("counted a void entry too", "paid no heed to the void status"),
    good_advice=(
        *do(
            "Check the status of each entry, and skip those that are void.",
            "Sum booked entries only; void ones do not count.",
            "Leave void entries out of every sum.",
            "Drop cancelled or void lines before adding up.",
        ),
        *avoid(
            "Counting void entries in a balance.",
            "Adding up entries whatever their status, void ones included.",
        ),
    ),
    bad_advice=(
        *do(
            "Include void entries in the sum as well.",
            "Count void lines like any other.",
        ),
        *avoid("Leaving void entries out of the sum."),
    ),
)

LEDGER_PITFALLS: Final = (BOOKING_RATE, FEE_ENTRY, CREDIT_SIGN, EVERY_ACCOUNT, VOID_ENTRIES)
