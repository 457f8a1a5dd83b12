"""Write train.csv, dev.csv and test.csv: 3,000 made-up e-mails to a shop, their topics, and the personal data in them.

python launch/demo_mails.py DIRECTORY
"""

import csv
import itertools
import json
import random
import re
import sys
from pathlib import Path

# For each topic sentences to learn from and, after an empty line, others. (a|b) is a choice, {PERSON} personal data.
TOPICS = {
    "address": """(We have|I have|My family has) moved to {STREET}, {CITY}.
(My|Our) new (address|home) is {STREET}.
From {DATE} on please send (everything|all letters|the invoices) to {STREET}, {CITY}.
{PERSON} (no longer lives|does not live any more) in {CITY}.
(Please|Kindly) change (my|our) address to {STREET}.
(The street in your letter|The house number on my bill) is wrong, it is {STREET}.
We are (leaving|moving out of) {CITY} on {DATE}.
Can you (update|correct) the (address|postcode) of {PERSON}?
You still (write|send letters) to my old (flat|house) in {CITY}.
Where can I tell you that I live (somewhere else|in another town) now?
Our office (moves|has moved) from {CITY} to {STREET}.
Please note that {PERSON} now lives in {CITY}.

Note that {PERSON} will live in {STREET} from {DATE} on.
As of {DATE} you find us in {CITY}.
The place where we live is now called {STREET}.
I have relocated, so forward my post to {STREET}, {CITY}.
Your records show an old address for {PERSON}.""",
    "refund": """(Please|Kindly) send the money back to {IBAN}.
I would like (a refund|my money back) to my account {IBAN}.
{COMPANY} (still owes me|has not paid) the refund of {DATE}.
The (refund|money) should go to {PERSON}, {IBAN}.
When do I get my money (back|returned)?
I (was charged|paid) twice on {DATE} and want (one payment|the difference) back.
(You|{COMPANY}) took too much from my account {IBAN}.
How long does a refund (take|last) after {DATE}?
{PERSON} sent the (shoes|jacket|lamp) back and waits for (the|a) repayment.
(Reimburse|Repay) what I paid to {COMPANY}, please.
The bill of {DATE} was (too high|wrong), so I (ask for|expect) a refund.
My bank says that no (refund|repayment) from {COMPANY} has come.

I returned the shoes on {DATE} and want to be paid back.
Could you refund {PERSON} at {IBAN}?
The amount was debited twice, please return it to {IBAN}.
Give me back what I paid on {DATE}.
{COMPANY} promised to reimburse {PERSON}.""",
    "delivery": """Where is the (parcel|package|letter) that {COMPANY} sent on {DATE}?
My order of {DATE} has not (arrived|come|arrived yet).
The driver left the (parcel|package) in {STREET}.
{COMPANY} says that it was (delivered|handed) to {PERSON}.
Has my (parcel|order) reached {CITY} (yet|already)?
(The|My) parcel (is|has been) stuck in {CITY} since {DATE}.
Which day will the (sofa|fridge|table) be delivered to {STREET}?
The courier (rang|came) on {DATE} but nobody was at home.
The box from {COMPANY} arrived (open|damaged|empty).
Can you (track|find) the shipment for {PERSON}?
Only (half|one part) of my order was in the parcel.
The (parcel|shipment) was given to a neighbour, {PERSON}.

I am still waiting for what I ordered on {DATE}.
The tracking says {CITY}, but nothing came to {STREET}.
When will the package for {PERSON} get to {CITY}?
The postman brought the wrong box to {STREET}.
{COMPANY} shipped it on {DATE}, yet it is not here.""",
    "contact": """(Please|You can) call me at {PHONE}.
(Please|You can) write to {EMAIL}.
My new (number|phone number) is {PHONE}.
{PERSON} can be reached at {PHONE} or {EMAIL}.
Please send (the answer|all questions) to {EMAIL}.
Who (answers|picks up) the phone at {COMPANY}?
I (tried to call|could not reach) {PERSON} at {PHONE} on {DATE}.
(What is|Do you have) the (e-mail address|phone number) of {PERSON}?
Can (someone|{PERSON}) call me back (today|tomorrow) at {PHONE}?
(Use|Take) {EMAIL} from now on, the old (mailbox|e-mail) is closed.
Is there a (hotline|chat) where I can talk to {COMPANY}?
I have no answer to my (mail|message) to {EMAIL}.

The best way to reach {PERSON} is {EMAIL}.
Ring {PHONE} after six.
Could I speak with {PERSON} on the phone?
My mobile has changed to {PHONE}.
Answer me by mail, {EMAIL}.""",
    "cancel": """I want to (cancel|end) my contract with {COMPANY}.
Please (end|stop) my (subscription|membership) on {DATE}.
{PERSON} would like to cancel the (order|booking) of {DATE}.
(Cancel|Delete) everything in the name of {PERSON}.
I do not (need|want) the (contract|subscription) any more.
How can I (quit|leave) {COMPANY}?
(This|Here) is my notice of termination for {DATE}.
(Please|Kindly) do not renew the (contract|insurance) after {DATE}.
We (withdraw from|revoke) the purchase of {DATE}.
(Close|Delete) the (account|profile) of {PERSON}.
I no longer wish to be a (member|customer) of {COMPANY}.
Confirm that the (contract|subscription) of {PERSON} ends on {DATE}.

Stop the subscription of {PERSON} by {DATE}, please.
We have decided to leave {COMPANY}.
Terminate my agreement with {COMPANY} on {DATE}.
I am giving notice, my membership ends on {DATE}.
Call off the order of {PERSON}.""",
}
VAGUE = """Could you check what happened?
I have written to you before.
Nobody could help me so far.
What can I do now?
I am not happy with this.
Thank you for looking into it.""".splitlines()
STARTS, ENDS = ("", "Hello, ", "Dear team, ", "Hi, "), ("", " {PERSON}", " Kind regards, {PERSON}", " Thanks, {PERSON}")
FIRST = "Ada Amir Ben Clara Chen Dora Emil Fatima Grace Hugo Ines Jan Kofi Lena Maria Nils Olga Paul Ravi Sofia Tom Zoe"
LAST = "Adler Brown Costa Dubois Eriksen Fischer Garcia Haddad Ivanov Jones Kim Lopez Moreau Novak Okafor Patel Rossi"
CITIES = "Bergen Berlin Bristol Dublin Geneva Ghent Krakow Leeds Lisbon London Lyon Madrid Milan Oslo Porto Vienna"
STREETS = "Baker Castle Church Garden Green High Hill Lake London Market Mill Park Queen River School Station Victoria"


def sentences(topic: str, part: int) -> list[str]:
    """Return a topic's sentences with every choice made; part: 0 of those to learn from, 1 of the others."""
    found = []
    for template in TOPICS[topic].split("\n\n")[part].splitlines():
        pieces = [piece.split("|") for piece in re.split(r"[()]", template)]
        found += ["".join(chosen) for chosen in itertools.product(*pieces)]
    return found


def value(name: str, draw: random.Random) -> str:
    """Return made-up personal data of a kind."""
    first, last = draw.choice(FIRST.split()), draw.choice(LAST.split())

    def digits(count: int) -> str:
        return "".join(draw.choices("0123456789", k=count))

    return {
        "PERSON": f"{first} {last}",
        "EMAIL": f"{first}.{last}{draw.randint(1, 99)}@example.{draw.choice(('com', 'org', 'net'))}".lower(),
        "PHONE": f"+{draw.randint(30, 49)} {digits(3)} {digits(6)}",
        "STREET": f"{draw.randint(1, 199)} {draw.choice(STREETS.split())} {draw.choice(('Street', 'Road', 'Lane'))}",
        "CITY": draw.choice(CITIES.split()),
        "IBAN": f"{draw.choice(('DE', 'FR', 'GB', 'ES'))}{digits(20)}",
        "COMPANY": f"{last} {draw.choice(('Ltd', 'GmbH', 'and Sons', 'Group'))}",
        "DATE": f"{draw.randint(1, 28)} {draw.choice(('January', 'March', 'May', 'July', 'October'))}",
    }[name]


def mail(topic: str, draw: random.Random) -> list[str]:
    """Return the row of an e-mail: text, topic, and the spans of personal data as JSON. One of 12 is vague."""
    known = sentences(topic, draw.random() < 0.2)
    body = draw.sample(known, draw.randint(1, 2)) if draw.random() > 1 / 12 else []
    if not body or draw.random() < 0.3:
        body.append(draw.choice(VAGUE))
    text, spans = "", []
    for part in re.split(r"\{(\w+)\}", draw.choice(STARTS) + " ".join(body) + draw.choice(ENDS)):
        filled = value(part, draw) if part.isupper() and len(part) > 1 else part
        if filled != part:
            spans.append({"start": len(text), "end": len(text) + len(filled), "label": part})
        text += filled
    return [text, topic, json.dumps(spans)]


def main(directory: Path) -> None:
    """Write the files and print how many e-mails each has."""
    directory.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for name, count in {"train.csv": 2000, "dev.csv": 500, "test.csv": 500}.items():
        with (directory / name).open("w", encoding="utf-8", newline="") as file:
            rows = [mail(draw.choice([*TOPICS]), draw) for _ in range(count)]
            csv.writer(file).writerows([("text", "label", "spans"), *rows])
        print(f"{directory / name}: {count:,} e-mails, {' '.join(TOPICS)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
