"""Calls into Python's library and other packages: what they write, and how often it changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvgate.prompts.clock import RESOLUTION_WORDS
from kvgate.prompts.part import Change, Kind, Part
from kvgate.source.text import Span


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(*rows: tuple[str, Kind, Change, str]) -> dict[str, tuple[Kind, Change, str]]:
    return {name: (kind, change, words) for names, kind, change, words in rows for name in names.split()}


_SECOND: Final = RESOLUTION_WORDS[Change.REQUEST]
_DATE: Final = RESOLUTION_WORDS[Change.DAY]

# the end of the dotted name decides: datetime.now, uuid.uuid4, or uuid4 alone
_CALLS: Final = _table(
    (
        """datetime.now datetime.utcnow datetime.today timezone.now timezone.localtime arrow.now arrow.utcnow arrow.get
        pendulum.now Timestamp.now Timestamp.utcnow Timestamp.today time.time time.time_ns time.ctime time.localtime
        time.gmtime time.asctime time.monotonic time.perf_counter Instant.now SystemDateTime.now maya.now
        dt.now dt.utcnow tz.now timezone.utcnow perf_counter utcnow time_ns""",
        Kind.CLOCK,
        Change.REQUEST,
        _SECOND,
    ),
    ("date.today timezone.localdate pendulum.today Date.today_in_system_tz", Kind.CLOCK, Change.DAY, _DATE),
    ("uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid1 uuid4 uuid7", Kind.IDENTIFIER, Change.REQUEST, "a new UUID"),
    (
        """shortuuid.uuid shortuuid.random ulid.new ulid.ULID nanoid.generate cuid.cuid secrets.token_hex
        secrets.token_urlsafe secrets.token_bytes os.urandom token_hex token_urlsafe""",
        Kind.IDENTIFIER,
        Change.REQUEST,
        "an id that is new with each request",
    ),
    (
        """random.random random.randint random.choice random.choices random.sample random.uniform random.randrange
        random.getrandbits random.gauss secrets.choice secrets.randbelow secrets.randbits random.rand random.shuffle
        randint random.permutation""",
        Kind.RANDOM,
        Change.REQUEST,
        "a random value",
    ),
    (
        """os.getenv os.environ.get environ.get socket.gethostname platform.system platform.release platform.machine
        platform.node platform.platform platform.python_version os.getpid os.getcwd getpass.getuser open
        metadata.version os.cpu_count locale.getlocale load_dotenv yaml.safe_load yaml.load toml.load tomllib.load
        tomllib.loads json.load resources.read_text resources.files os.path.join os.path.dirname os.uname""",
        Kind.STATIC,
        Change.PROCESS,
        "",
    ),
)

#: Calls whose result is their first argument as far as a prompt goes.
PASSING: Final = _words(
    """str repr format int float round bool bytes ascii textwrap.dedent dedent inspect.cleandoc cleandoc html.escape
    escape copy.copy copy.deepcopy deepcopy typing.cast cast asyncio.run asyncio.wait_for asyncio.create_task
    textwrap.indent indent shlex.quote quote unicodedata.normalize json.loads textwrap.fill textwrap.shorten min max
    abs reversed iter next tuple list Markup SecretStr"""
)

#: Listings whose order nobody promises, with why.
LISTINGS: Final = {
    "list_tools": "list_tools() promises no order",
    "get_tools": "get_tools() promises no order",
    "load_mcp_tools": "load_mcp_tools() promises no order",
    "list_resources": "list_resources() promises no order",
    "list_prompts": "list_prompts() promises no order",
    "listdir": "os.listdir() promises no order",
    "scandir": "os.scandir() promises no order",
    "iterdir": "iterdir() promises no order",
    "glob": "glob() promises no order",
    "rglob": "rglob() promises no order",
    "entry_points": "entry_points() promises no order",
    "smembers": "smembers() promises no order",
    "hgetall": "hgetall() promises no order",
    "hvals": "hvals() promises no order",
    "as_completed": "as_completed() yields in order of completion",
    "imap_unordered": "imap_unordered() yields in order of completion",
    "globals": "globals() changes with imports",
    "__subclasses__": "__subclasses__() changes with imports",
}

#: Decorators after which a function runs once and its value stays.
CACHES: Final = frozenset(
    {"lru_cache", "cache", "cached_property", "cached", "memoize", "cache_resource", "cache_data"}
)

#: Methods that write the text of their receiver, changed in its form only.
TEXT_METHODS: Final = _words(
    """strip lstrip rstrip lower upper title capitalize expandtabs replace removeprefix removesuffix encode decode
    ljust rjust center zfill splitlines split rsplit partition casefold swapcase translate tolist copy model_dump dict
    json model_dump_json to_dict as_dict astimezone to_json isoformat ctime getvalue result read readlines read_text
    item get_secret_value hex bytes mention total_seconds"""
)

#: Calls that make a date or time of their arguments.
_DATES: Final = _words(
    """datetime.datetime datetime.date datetime.time datetime.combine date.fromisoformat datetime.fromisoformat strptime
    datetime.fromtimestamp date.fromtimestamp datetime.utcfromtimestamp fromtimestamp fromisoformat parser.parse
    dateutil.parse isoparse pendulum.parse pendulum.from_timestamp arrow.Arrow timedelta datetime.timedelta"""
)


def known_call(dotted: str, span: Span) -> Part | None:
    """What a call of a dotted name writes, None where it is not known."""
    for name in _endings(dotted):
        found = _CALLS.get(name)
        if found is not None:
            kind, change, words = found
            short = dotted.split(".")
            shown = ".".join(short[-2:])
            return Part(kind, change, span, words=f"{words} ({shown}())" if words else "")
    return None


def makes_date(dotted: str) -> bool:
    """Whether a call makes a date or time of what it is given."""
    return any(name in _DATES for name in _endings(dotted))


def passes(dotted: str) -> bool:
    return any(name in PASSING for name in _endings(dotted))


def _endings(dotted: str) -> Iterable[str]:
    parts = dotted.split(".")
    for count in (3, 2, 1):
        if count <= len(parts):
            yield ".".join(parts[-count:])
