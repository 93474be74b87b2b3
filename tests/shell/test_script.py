"""What scripts run, told without running them."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.shell.command import Command, basename
from kvgate.shell.script import _Reader, _Scope, _source, commands, commands_of_words
from kvgate.shell.value import Value
from kvgate.shell.words import split_words
from kvgate.source.text import SourceFile, Span, Text, TooLargeError, Word


def text_of(content: str) -> Text:
    return Text.of_span(Span(SourceFile("run.sh", content), 0, len(content)))


def environment(**values: str) -> dict[str, Value]:
    return {name: Value(text_of(value)) for name, value in values.items()}


def shown(word: Word) -> str:
    """A word, with a question mark in front where a part is unknown, two where it may be several words."""
    return ("?" * (1 + word.splits) if word.unresolved else "") + word.value


def run(script: str, **values: str) -> list[list[str]]:
    return [[shown(word) for word in found.words] for found in commands(text_of(script), environment(**values))]


def only(script: str, **values: str) -> Command:
    found = [c for c in commands(text_of(script), environment(**values)) if c.words[0].value == "vllm"]
    assert len(found) == 1
    return found[0]


def words(script: str, **values: str) -> list[str]:
    return [shown(word) for word in only(script, **values).words[1:]]


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("vllm serve m \\\n  --a 1 \\\n  --b", ["serve", "m", "--a", "1", "--b"]),
        ("vllm serve m --a 16384\\\n  --b", ["serve", "m", "--a", "16384", "--b"]),
        ("vllm serve m \\\n  `# it's 'why'` \\\n  \\\n  --a 1 \\\n`# $X` \\\n  --b", ["serve", "m", "--a", "1", "--b"]),
        ("vllm serve m \\\r\n  --a 1\r\n", ["serve", "m", "--a", "1"]),
        ("MODEL=x; vllm serve $MODEL", ["serve", "x"]),
        ("MODEL='a b'; vllm \"$MODEL\" $MODEL", ["a b", "a", "b"]),
        ('A="a]"; B="${A%]}"; [[ $A =~ \\\n  ^[a]$ ]] || x; vllm "$B" ${A#(}', ["a", "a]"]),
        ("A=a B=b; M=/$A/$B-x; vllm /$A/$B/y $A-$B-z $M ${A}/$B.q", ["/a/b/y", "a-b-z", "/a/b-x", "a/b.q"]),
        ("vllm ${X:-d} ${X:-a b} \"${X:-a b}\"", ["d", "a", "b", "a b"]),
        ("X=1; vllm ${X:+--x \"$X y\" z} ${Y:+--y}", ["--x", "1 y", "z"]),
        ('A=(--x "1 2") B=(); vllm "${A[@]+"${A[@]}"}" "${B[@]+"${B[@]}"}" "${A[0]:+"y"}"', ["--x", "1 2", "y"]),
        ("vllm ${X:-${Y:-${Z:-deep}}}", ["deep"]),
        ("A=3 B=4; vllm --n=$((A * B + 2)) $((B / A))", ["--n=14", "1"]),
        ("vllm $((UNSET * 2)) $(nproc) `ls -l`", ["?$((UNSET * 2))", "??$(nproc)", "??`ls -l`"]),
        ("M=org/Name-7B; vllm ${M##*/} ${M%-*} ${M/-/_} ${M,,} ${M:4} ${M:0:3} ${#M}",
         ["Name-7B", "org/Name", "org/Name_7B", "org/name-7b", "Name-7B", "org", "11"]),
        ("vllm '{\"a\": 1}' \"{\\\"b\\\": \\\"$X\\\"}\"", ['{"a": 1}', '?{"b": "$X"}']),
        ("vllm $'a\\tb\\x41' $\"c d\"", ["a\tbA", "c d"]),
        ("vllm a > log --late b 2>&1 < in", ["a", "--late", "b"]),
        ("vllm <model-id> --x {{ .Values.x }} y", ["?<model-id>", "--x", "??{{ .Values.x }}", "y"]),
        ("vllm a # --not-this\n", ["a"]),
        ("vllm serve m \\ --port 1", ["serve", "m", "--port", "1"]),
        ("ARGS=(--a \"b c\" d)\nARGS+=(--e)\nvllm \"${ARGS[@]}\" ${#ARGS[@]} ${ARGS[1]}",
         ["--a", "b c", "d", "--e", "4", "b", "c"]),
        ("A='--x 1'; A+=' --y'; vllm $A", ["--x", "1", "--y"]),
        ("set -- a 'b c'; vllm \"$@\" $# \"$2\" \"$*\"", ["a", "b c", "2", "b c", "a b c"]),
        ("vllm \"$@\" $1", ["??$@", "??$1"]),
        ("X=a; unset X; vllm $X", ["??$X"]),
        ("vllm ${X?gone} ${X:=kept} $X", ["??${X?gone}", "kept", "kept"]),
        ("vllm é \"😀 x\"", ["é", "😀 x"]),
    ],
)  # fmt: skip
def test_words_of_a_command(script: str, expected: list[str]) -> None:
    assert words(script) == expected


def test_reasons() -> None:
    found = only('vllm $MODEL $(nproc) "$1" $HOSTNAME $((N+1))')
    assert [word.unresolved[0].reason for word in found.words[1:]] == [
        "MODEL is set in no file here",
        "$(nproc) is known at run time only",
        "argument 1 of the script",
        "$HOSTNAME is known at run time only",
        "N is not known as a number",
    ]


def test_a_value_stands_where_it_is_used_and_flags_where_they_are_written() -> None:
    script = "LEN=32768\nARGS='--tp 2 --seed 1'\nvllm serve m --max-model-len $LEN $ARGS"
    found = only(script)
    at = {word.value: word.span for word in found.words}
    assert (at["32768"].line, at["32768"].text) == (3, "$LEN")
    assert (at["--seed"].line, at["--seed"].text) == (2, "--seed")
    assert (at["2"].line, at["2"].text) == (2, "2")
    assert (at["serve"].line, at["serve"].text) == (3, "serve")


def test_positions_count_code_points() -> None:
    script = "echo 'äöü 😀'; vllm serve 'é' --port 80"
    spans = [word.span.text for word in only(script).words]
    assert spans == ["vllm", "serve", "é", "--port", "80"]


# -- environment -------------------------------------------------------------------------------------------------------


def test_what_the_command_gets_in_its_environment() -> None:
    script = "export A=1\nB=2\nC=3\nexport C\nGIVEN=new\nD=4 env E=5 vllm serve x"
    found = only(script, GIVEN="old")
    assert {item.name: item.value.value for item in found.environment} == {
        "A": "1",
        "C": "3",
        "GIVEN": "new",
        "D": "4",
        "E": "5",
    }


def test_a_prefix_is_not_seen_by_the_words_after_it() -> None:
    assert words("M=a; M=b vllm $M") == ["a"]


def test_the_environment_is_known_to_the_script() -> None:
    assert words('vllm "$MODEL" ${FLAGS}', MODEL="m", FLAGS="--a 1") == ["m", "--a", "1"]


# -- structure ---------------------------------------------------------------------------------------------------------


def test_lists_pipes_and_background() -> None:
    assert run("a && b | c; d & e || f\n(g; h)\n{ i; }\n! j") == [[name] for name in "abcdefghij"]


def test_what_follows_an_or_is_conditional() -> None:
    found = commands(text_of("a || b"))
    assert [command.conditions for command in found] == [(), ("not: a",)]


def test_here_documents_are_no_commands() -> None:
    assert run("cat <<EOF > f\nvllm serve x\nEOF\nvllm serve y") == [["cat"], ["vllm", "serve", "y"]]


@pytest.mark.parametrize(
    ("condition", "branch"),
    [
        ('[ "$MODE" = a ]', "then"),
        ('[ "$MODE" != a ]', "else"),
        ("[[ $MODE == a* ]]", "then"),
        ('[[ "$MODE" == "a*" ]]', "else"),
        ('[ -n "$MODE" ]', "then"),
        ('[ -z "$MODE" ]', "else"),
        ('[ "$N" -gt 1 ]', "then"),
        ("[[ $N -lt 1 || $MODE == a ]]", "then"),
        ('[ ! -n "$MODE" ]', "else"),
        ("true", "then"),
        ("! true", "else"),
        ("[ $# -gt 0 ]", "else"),
        ("(( N > 1 ))", "then"),
        ("((N==1+2))", "else"),
        ("(( N ))", "then"),
        ("(( N - 2 ))", "else"),
        ('[ "$N" -gt 1 ] 2>/dev/null', "then"),
    ],
)
def test_conditions_that_the_files_decide(condition: str, branch: str) -> None:
    script = f"if {condition}; then vllm then; else vllm else; fi"
    assert run(script, MODE="a", N="2") == [["vllm", branch]]


@pytest.mark.parametrize("condition", ["(( Q > 1 ))", "((N++))", "(( N > 1 && N < 3 ))", "[ -e /x ] 2>/dev/null"])
def test_conditions_that_are_not_followed(condition: str) -> None:
    script = f"if {condition}; then vllm then; else vllm else; fi"
    assert run(script, N="2") == [["vllm", "then"], ["vllm", "else"]]


def test_conditions_that_nobody_knows() -> None:
    script = 'if [ -f /x ]; then vllm a; elif [ "$Q" = 1 ]; then vllm b; else vllm c; fi'
    found = commands(text_of(script))
    assert [(command.words[1].value, command.conditions) for command in found] == [
        ("a", ("[ -f /x ]",)),
        ("b", ("not: [ -f /x ]", '[ "$Q" = 1 ]')),
        ("c", ("not: [ -f /x ]", 'not: [ "$Q" = 1 ]')),
    ]


def test_what_a_branch_may_add_is_unknown() -> None:
    script = 'A="--x 1"\nL=(--y)\nif [ -f /q ]; then A="$A --z"; L+=(--w 2); fi\nvllm $A "${L[@]}" end'
    assert words(script) == ["--x", "1", "??--z", "--y", "??--w 2", "end"]
    reason = only(script).words[3].unresolved[0].reason
    assert reason == "only if [ -f /q ]"


def test_what_branches_set_differently_is_unknown() -> None:
    assert words("if [ -f /q ]; then M=a; else M=b; fi\nvllm $M") == ["??$M"]
    assert words("if [ -f /q ]; then M=a; else M=a; fi\nvllm $M") == ["a"]


def test_case() -> None:
    script = "case $M in a|b*) T=1;; *) T=2;; esac\nvllm $T"
    assert words(script, M="bc") == ["1"]
    assert words(script, M="z") == ["2"]
    # a script without any settings: what nobody sets is empty
    assert words(script) == ["2"]
    assert words("case $(uname) in a) T=1;; *) T=2;; esac\nvllm $T") == ["??$T"]


def test_options_of_a_script_that_is_given_none() -> None:
    script = """
MODEL=${1:-org/default}
while [[ $# -gt 0 ]]; do
  case "$1" in
    --model) MODEL="$2"; shift 2 ;;
    *) shift ;;
  esac
done
vllm serve "$MODEL"
"""
    assert words(script) == ["serve", "org/default"]
    given = commands(text_of(script), arguments=[Word(text_of("--model")), Word(text_of("x/y"))])
    assert [word.value for word in given[-1].words] == ["vllm", "serve", "x/y"]


def test_functions() -> None:
    script = 'serve() { vllm serve "$1" --port $2; }\nserve a 1\nserve "b c" 2\nnever() { vllm never; }'
    found = commands(text_of(script))
    assert [[word.value for word in command.words[1:]] for command in found] == [
        ["serve", "a", "--port", "1"],
        ["serve", "b c", "--port", "2"],
        ["never"],
    ]
    assert found[2].conditions == ("never() is called",)


def test_loops() -> None:
    assert run("for i in 0 1; do P=$((8000+i)) vllm --port $((8000 + i)) & done") == [
        ["vllm", "--port", "8000"],
        ["vllm", "--port", "8001"],
    ]
    assert run("for i in {1..3}; do vllm $i; done") == [["vllm", "1"], ["vllm", "2"], ["vllm", "3"]]
    assert run("for i in $LIST; do vllm $i; done") == [["vllm", "??$i"]]
    assert run("while true; do vllm m; sleep 5; done") == [["vllm", "m"], ["sleep"]]
    assert run("for ((i=0; i<2; i++)); do vllm --port $((8000+i)); done") == [
        ["vllm", "--port", "8000"],
        ["vllm", "--port", "8001"],
    ]
    assert run("for ((i=0; i<N; i++)); do vllm $((8000+i)); done") == [["vllm", "?$((8000+i))"]]
    assert run("N=${N:-2}\nfor ((i = 1; i <= N; i += 1)); do vllm $i; done", N="1") == [["vllm", "1"]]
    for step in ("i += EACH", "i=i+${EACH}"):
        stepped = f"EACH=2\nfor ((i=0; i < 4; {step})); do vllm $i; done"
        assert run(stepped) == [["vllm", "0"], ["vllm", "2"]]
        assert run(stepped.replace("=2", "=0")) == [["vllm", "?$i"]]
    assert run("for i in $(seq 0 $((N - 1))); do vllm $i; done", N="2") == [["vllm", "0"], ["vllm", "1"]]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('M=$1\nif [ -z "$M" ]; then M=d; fi\nvllm $M', ["d"]),
        ('M=$1\nif [ "X${M}" == "X" ]; then M=d; fi\nvllm $M', ["d"]),
        ('if [ -n "$1" ]; then M=$1; else M=d; fi\nvllm $M', ["d"]),
        ('if [ "$MODE" = big ]; then M=a; elif [ "$MODE" = mid ]; then M=b; else M=c; fi\nvllm $M', ["c"]),
        # what the branch without settings leaves unknown stays unknown
        ('if [ "$1" = small ]; then M=a; else M=$1; fi\nvllm $M', ["??$M"]),
        ('if [ -d /m ] || [ -z "$1" ]; then M=a; else M=b; fi\nvllm $M', ["a"]),
        ('if [ -d /m ]; then M=a; elif [ -z "$1" ]; then M=b; else M=c; fi\nvllm $M', ["??$M"]),
        ("if [ -t 0 ]; then read -rp which M; else M=a; fi\nvllm $M", ["a"]),
        # what is set on a condition is not set without it
        ('if [ -n "$1" ]; then M=$1; fi\nvllm "${M:-d}" ${M:+--x} $M', ["d", "??$M"]),
        ('if [ "$MODE" = big ]; then N=1; fi\n[ -z "$N" ] && N=2\nvllm $N', ["2"]),
        ('if [ -d /m ]; then M=a; fi\nvllm "${M:-d}"', ["?$M"]),
        # arrays too
        ('if [ -n "$Q" ]; then L=(--q "$Q"); else L=(--x 1); fi\nvllm "${L[@]}"', ["--x", "1"]),
        ('if [ -d /m ]; then L=(--q 2); else L=(--x 1); fi\nvllm --y "${L[@]}"', ["--y", "??$L"]),
        ('L=(--y)\nif [ -n "$Q" ]; then L+=(--q); else L+=(--x); fi\nvllm "${L[@]}"', ["--y", "??--q", "??--x"]),
        # what a branch only adds is conditional
        ('A="--x"\nif [ -n "$Q" ]; then A="$A --q"; fi\nvllm $A', ["--x", "??--q"]),
    ],
)
def test_a_script_without_settings_takes_its_defaults(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('T=no\n[ "$T" = yes ] && A=--x\nvllm $A', ["??$A"]),
        ('T=yes\n[ "$T" = yes ] && A=--x\nvllm $A', ["--x"]),
        ('T=no\n[[ "$T" == yes ]] || A=--x\nvllm $A', ["--x"]),
        ('T=yes\nL=(a)\n[[ "$T" == yes ]] || L+=(--x)\nvllm "${L[@]}"', ["a"]),
        # not known: as with if
        ('L=(a)\n[ -f /q ] && L+=(--x)\nvllm "${L[@]}"', ["a", "??--x"]),
        ('L=(a)\n[ -n "$Q" ] && L+=(--q "$Q")\nvllm "${L[@]}"', ["a", "??--q $Q"]),
        ("M=a\n[ -d /m ] && M=/m\nvllm $M", ["??$M"]),
        ('M=$1\n[ -z "$M" ] && M=d\nvllm $M', ["d"]),
        ('M=$1\n[ -n "$M" ] || M=d\nvllm $M', ["d"]),
        # one of two
        ('T=yes\n[ "$T" = yes ] && A=1 || A=2\nvllm $A', ["1"]),
        ('T=no\n[ "$T" = yes ] && A=1 || A=2\nvllm $A', ["2"]),
        ('[ -z "$A" ] && A=1 || A=2\nvllm $A', ["1"]),
        ('[[ -n "$Q" && -z "$R" ]] && A=1 || A=2\nvllm $A', ["2"]),
        ("[ -d /m ] && A=1 || A=2\nvllm $A", ["??$A"]),
        ('[ -n "$Q" ] && { A=1; B=1; } || { A=2; B=2; }\nvllm $A $B', ["2", "2"]),
        ("[ -z x ] && A=1 || [ -n x ] && A=3 || A=2\nvllm $A", ["3"]),
        # a program is taken to succeed
        ("cd /app && M=a\nvllm $M", ["a"]),
    ],
)
def test_assignments_behind_a_test(script: str, expected: list[str]) -> None:
    assert words(script) == expected


def test_commands_behind_a_test() -> None:
    assert run('T=no\n[ "$T" = yes ] && vllm a\n[ "$T" = no ] && vllm b\n[ -f /q ] && vllm c') == [
        ["vllm", "b"],
        ["vllm", "c"],
    ]


def test_a_question_that_nobody_answers() -> None:
    assert words('read -rp "Model [d]: " M\nM=${M:-d}\nvllm $M') == ["d"]
    assert words("while read -r M; do vllm ${M:-d}; done < list") == ["??$M"]
    assert words("M=$1\nvllm ${M:-d}") == ["d"]


@pytest.mark.parametrize(
    "script",
    [
        'V=$(command -v vllm); "$V" serve m',
        'V="$(which vllm 2>/dev/null || true)"; $V serve m',
        "V=`type -P vllm`; $V serve m",
        'V=./.venv/bin/vllm\nif [[ ! -x "$V" ]]; then V="$(command -v vllm)"; fi\n"$V" serve m',
        "if x; then V=/opt/a/bin/vllm; else V=$HOME/b/bin/vllm; fi; $V serve m",
    ],
)
def test_a_program_in_a_folder_that_is_not_known(script: str) -> None:
    (found,) = [c for c in commands(text_of(script)) if basename(c.words[0]) == "vllm" and len(c.words) > 1]
    assert not found.words[0].resolved
    assert [shown(word) for word in found.words[1:]] == ["serve", "m"]


def test_a_program_that_is_looked_for_is_there() -> None:
    assert run('V=$(command -v vllm)\nif [ -z "$V" ]; then a; else b; fi')[-1:] == [["b"]]
    # two programs, or two files, are no one
    for first, second in (("/x/bin/a", "/x/bin/b"), ("/x/a", "/y/a")):
        assert run(f"if x; then V={first}; else V={second}; fi; $V serve")[-1] == ["??$V", "serve"]


def test_what_is_run_here_or_there_is_one() -> None:
    here_or_there = 'on() { if local "$1"; then bash -lc "$2"; else ssh "$1" "bash -lc \'$2\'"; fi; }\n'
    assert run(here_or_there + 'on n1 "vllm serve m"').count(["vllm", "serve", "m"]) == 1
    assert run("if a; then vllm serve m; elif b; then c; else vllm serve m; fi").count(["vllm", "serve", "m"]) == 1
    # what another branch may run besides is another one
    assert run("if a; then vllm serve m; fi; vllm serve m").count(["vllm", "serve", "m"]) == 2
    assert run('ssh n1 "vllm serve m"; ssh n2 "vllm serve m"').count(["vllm", "serve", "m"]) == 2


def test_a_script_ends_where_its_arguments_say_so() -> None:
    script = 'case "$1" in a) M=1 ;; b) M=2; OTHER=yes ;; esac\n%s\nvllm serve $M'
    leaves = 'if [ "$OTHER" = yes ]; then llama-server; %s; fi'

    def starts(text: str, mode: str) -> bool:
        return any(c.words[0].value == "vllm" for c in commands(text_of(text), arguments=split_words(text_of(mode))))

    for ending in ("exit 0", "exit"):
        assert starts(script % (leaves % ending), "a")
        assert not starts(script % (leaves % ending), "b")
    assert not starts(script % ("leave() { echo; exit 0; }\n" + leaves % "leave"), "b")
    # it is taken not to fail, and what nobody knows may not hold
    assert starts(script % (leaves % "exit 1"), "b")
    assert starts(script % "if [ -f x ]; then exit 0; fi", "b")
    assert starts(script % '[ "$OTHER" = yes ] && exit 0', "b")
    # nor is it known what it is given
    assert run("if [ $# -eq 0 ]; then usage; exit 0; fi\nvllm serve m")[-1] == ["vllm", "serve", "m"]


def test_what_branches_set_anew_is_one_unknown() -> None:
    script = 'M=""\nif [ -d /m ]; then M=a; else M=b; fi\nvllm $M'
    assert words(script) == ["??$M"]


@pytest.mark.parametrize(
    ("right", "holds"),
    [
        ('*"30B"*', True),
        ("*'30B'*", True),
        ('"org/m-"*', True),
        ('org"/m"*', True),
        ('*"30B"', False),
        ('*"8B"*', False),
        ('"*30B*"', False),
        ('*"?0B"*', False),
        ("*'['*", False),
        ('*"${SIZE:-30B}"*', True),
        ('"$ANY"', False),
        ("$ANY", True),
        ('*"8B"* || $M == *"-30B-"*', True),
    ],
)
def test_what_is_quoted_in_a_pattern_stands_for_itself(right: str, *, holds: bool) -> None:
    script = f"M=org/m-30B-it; ANY='*B*'\nif [[ $M == {right} ]]; then T=1; else T=2; fi\nvllm $T"
    assert words(script) == ["1" if holds else "2"]
    if "||" not in right:
        assert words(script.replace("==", "!=")) == ["2" if holds else "1"]


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("srun --nodes=2 bash -c 'vllm serve m'", True),
        ("srun --overlap -N 1 --container-image=x#y bash -lc 'vllm serve m'", True),
        ("srun --exclusive bash -c 'cd /x\nvllm serve m'", True),
        ("su - user -s /bin/bash -c 'vllm serve m'", True),
        ("run --shell bash 'vllm serve m'", False),
        ("run --entrypoint bash image -c 'vllm serve m'", False),
    ],
)
def test_shells_behind_options_of_another_program(line: str, *, runs: bool) -> None:
    found = [[word.value for word in command.words] for command in commands(text_of(line))]
    assert (["vllm", "serve", "m"] in found) is runs


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("while IFS=, read -r a b; do vllm $a $b; done <<EOF\nm,1\nn,2\nEOF", [["m", "1"], ["n", "2"]]),
        ('L="m 1\nn 2"\nwhile read -r a b; do vllm $a --p $b; done <<< "$L"', [["m", "--p", "1"], ["n", "--p", "2"]]),
        (
            "while read -r a; do case $a in '' | \\#*) continue ;; esac; vllm $a; done <<'E'\n# x\nm\n\nn\nE",
            [["m"], ["n"]],
        ),
        ("while read -r a; do vllm $a; [ $a = n ] && break; done <<< $'m\\nn\\no'", [["m"], ["n"]]),
        # not known
        ("while read -r a; do vllm $a; done <<< $Q", [["??$a"]]),
        ("cat f | while read -r a; do vllm $a; done", [["??$a"]]),
        ("while read -r a; do vllm $a; done < f", [["??$a"]]),
    ],
)
def test_rounds_over_lines(script: str, expected: list[list[str]]) -> None:
    assert [line[1:] for line in run(script) if line[0] == "vllm"] == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('for n in 8 4 2; do if [ "$n" -le 4 ]; then T=$n; break; fi; done; vllm $T', [["4"]]),
        ("for ((n = 1; n < 4; n++)); do [ $n -eq 2 ] && break; vllm $n; done", [["1"]]),
        ('for m in a x b; do [ "$m" = x ] && continue; vllm $m; done', [["a"], ["b"]]),
        ("for m in a x b; do case $m in x) continue ;; esac; vllm $m; done", [["a"], ["b"]]),
        (
            "N=3; while [ $N -gt 0 ]; do vllm $N; N=$((N - 1)); [ $N -eq 1 ] && break; done; vllm $N",
            [["3"], ["2"], ["1"]],
        ),
        # what may leave the loop may not
        ("for m in a b; do [ -f $m ] && continue; vllm $m; done", [["a"], ["b"]]),
        ("for m in a b; do if [ -f $m ]; then break; fi; vllm $m; done", [["a"], ["b"]]),
    ],
)
def test_rounds_that_end_early(script: str, expected: list[list[str]]) -> None:
    assert [line[1:] for line in run(script) if line[0] == "vllm"] == expected


def test_options_that_nobody_gives() -> None:
    script = """M=m; P=1
        while getopts "m:p:h" option; do
            case $option in m) M=$OPTARG;; p) P=$OPTARG;; *) exit 1;; esac
        done
        shift $((OPTIND - 1))
        vllm $M $P "$@"
        """
    assert words(script) == ["m", "1", "??$@"]
    told = commands(text_of("set -- -m q\n" + script))[-1]
    assert shown(told.words[1]) == "??$M"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "C=$(cat <<'EOF'\nvllm serve $M --x \\\n  '{\"a\": 1}'\nEOF\n)\neval $C",
            ["serve", "??$M", "--x", '{"a": 1}'],
        ),
        ('M=m\nC="$(cat << EOF\nvllm serve $M ${N:-n}\nEOF\n)"\neval "$C"', ["serve", "m", "n"]),
        ("A=$(cat <<-EOF\n\t--a 1\n\t--b\n\tEOF\n)\nvllm $A", ["--a", "1", "--b"]),
        ("A=$(cat <<EOF\nEOF\n)\nvllm a $A", ["a"]),
        ("read -r -d '' C <<'EOF'\nvllm serve m\nEOF\neval \"$C\"", ["serve", "m"]),
        ("M=m\nread -rd '' C <<EOF || true\nvllm serve $M\nEOF\neval $C", ["serve", "m"]),
        # a line of it, or a file, is something else
        ("read -r C <<EOF\n--a\n--b\nEOF\nvllm $C", ["??$C"]),
        ("C=$(cat args)\nvllm $C", ["??$(cat args)"]),
    ],
)
def test_here_documents_as_values(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('L=("$@")\nif [ ${#L[@]} -eq 0 ]; then L=(--x 1); fi\nvllm "${L[@]}"', ["--x", "1"]),
        ('L=("$@")\n[[ ${#L[@]} -gt 0 ]] || L=(--x)\nvllm "${L[@]}"', ["--x"]),
        ('L=("$@" $Q)\nif [ ${#L[@]} -eq 0 ]; then L=(--x 1); fi\nvllm "${L[@]}"', ["??$L"]),
    ],
)
def test_a_script_that_nobody_tells_anything_has_no_arguments(script: str, expected: list[str]) -> None:
    assert words(script) == expected


def test_variables_of_many_branches_are_too_many() -> None:
    for joint in ("\n[ -f b ] && ", " && "):
        with pytest.raises(TooLargeError):
            run("[ -f b ] && A=1" + "".join(f"{joint}A{number}=1" for number in range(4_000)))


def test_a_long_list_is_read_from_its_beginning() -> None:
    assert run(" && ".join(f"p{number}" for number in range(40)))[0] == ["p0"]


def test_a_function_that_nothing_calls_has_no_defaults() -> None:
    script = 'up() { if [ "$2" = true ]; then M=a; else M=b; fi; vllm $M; }'
    assert words(script) == ["??$M"]


@pytest.mark.parametrize(
    "ending",
    ["exit 1", "echo no; exit 1", "usage", "if [ -f /b ]; then exit 1; else exit 2; fi"],
)
def test_a_branch_that_ends_the_script_sets_nothing_for_later(ending: str) -> None:
    script = "usage() { echo how; exit 1; }\nif [ -f /a ]; then M=a; else {}; fi\nvllm $M"
    assert words(script.replace("{};", f"{ending};")) == ["a"]
    case = f"case $(uname) in Linux) M=a;; *) {ending};; esac\nvllm $M"
    assert words("usage() { echo how; exit 1; }\n" + case) == ["a"]
    # one that goes on, or ends on a condition, does
    assert words(script.replace("{};", "[ -f /c ] && exit 1; M=b;")) == ["??$M"]


def test_what_a_loop_sets_before_it_is_left() -> None:
    assert words("for x in $LIST; do M=a; break; done\nvllm $M") == ["??$M"]
    assert words("for x in 1 2; do M=a$x; continue; done\nvllm $M") == ["a2"]
    assert words("while read -r x; do M=a; break; done < f\nvllm $M") == ["??$M"]
    assert words("if [ -f /a ]; then for x in 1; do exit 1; done; M=a; else M=b; fi\nvllm $M") == ["b"]


def test_a_sourced_file_returns() -> None:
    find = {"lib.sh": Value(text_of("M=a\nreturn 0\n"))}.get
    found = commands(text_of("if [ -f lib.sh ]; then source lib.sh; N=1; else N=2; fi\nvllm $N"), find=find)
    assert [shown(word) for word in found[-1].words] == ["vllm", "??$N"]


def test_loops_within_loops_are_not_run_without_measure() -> None:
    script = "".join(f"for ((i{n}=0; i{n}<16; i{n}++)); do\n" for n in range(5)) + "vllm serve m\n" + "done\n" * 5
    assert [found[:3] for found in run(script)] == [["vllm", "serve", "m"]]


def test_arrays_by_key() -> None:
    script = """
declare -A MODELS=( ["small"]="org/s" [large]=org/l )
declare -A PORTS
PORTS["small"]=1
PORTS[large]=2
KEY=${1:-large}
vllm "${MODELS[$KEY]}" ${PORTS[${KEY}]} ${MODELS[none]:-no} ${#PORTS[@]}
"""
    assert words(script) == ["org/l", "2", "no", "2"]
    every = script.replace("vllm", 'for k in "${!MODELS[@]}"; do vllm $k "${MODELS[$k]}" ${PORTS[$k]}; done #')
    assert [found[1:] for found in run(every)] == [["small", "org/s", "1"], ["large", "org/l", "2"]]
    unknown = "declare -A M=([a]=b)\nM[$Q]=c\nvllm ${M[a]} ${M[$Q]}"
    assert words(unknown) == ["??${M[a]}", "??${M[$Q]}"]


def test_lists_by_number() -> None:
    script = 'G=(0 2)\nfor i in "${!G[@]}"; do vllm ${G[$i]} ${G[i]} $((8000 + i)); done'
    assert run(script) == [["vllm", "0", "0", "8000"], ["vllm", "2", "2", "8001"]]
    assert words("G=(a b)\nG[1]=c\nvllm ${G[1]} ${G[0]}") == ["c", "a"]


def test_variables_by_name() -> None:
    assert words("PORT_A=7\nN=PORT_A\nvllm ${!N} ${!N:-1} ${!Q}") == ["7", "7", "??${!Q}"]


def test_lines_that_are_divided() -> None:
    script = """
for row in "org/a:8001:0" "org/b:8002:1:x"; do
  IFS=':' read -r model port rest <<< "$row"
  vllm $model $port $rest
done
"""
    assert run(script) == [["vllm", "org/a", "8001", "0"], ["vllm", "org/b", "8002", "1:x"]]
    assert words('read -ra A <<< " --x  1 "\nvllm "${A[@]}" ${#A[@]}') == ["--x", "1", "2"]
    assert words('read -r a b <<< "$Q"\nvllm $a $b') == ["??$a", "??$b"]
    assert words('IFS=: read -r a b <<< "x:$Q"\nvllm $a $b') == ["x", "??$Q"]
    assert words('IFS=: read -r a b c <<< "x:$Q"\nvllm $a $b $c') == ["??$a", "??$b", "??$c"]
    assert words("read -r a\nvllm $a") == ["??$a"]


@pytest.mark.parametrize(
    ("printing", "expected"),
    [
        ('basename "$M"', "Name-7B"),
        ("basename /a/b.gguf .gguf", "b"),
        ("dirname /a/b/c", "/a/b"),
        ('echo "$M" | cut -d/ -f2', "Name-7B"),
        ("echo a:b:c | cut -d ':' -f 2-", "b:c"),
        ("echo $M | tr '/' '-' | tr '[:upper:]' '[:lower:]'", "org-name-7b"),
        ("echo a-b_c | tr -d '_'", "a-bc"),
        ("echo $M | sed 's|/|--|g'", "org--Name-7B"),
        ("printf '%s' $M", "org/Name-7B"),
        # not followed
        ("echo $M | awk '{print $1}'", None),
        ("echo $M | sed 's/o.g/x/'", None),
        ("basename $Q", None),
        ("echo $M; date", None),
        ("cat /x | cut -d: -f1", None),
        ("seq 1 100", None),
        ("echo /models/*.gguf", None),
        ("basename ~/m", None),
    ],
)
def test_what_is_printed_from_words_alone(printing: str, expected: str | None) -> None:
    found = words(f'M=org/Name-7B\nvllm "$({printing})"')
    assert found == [f"?$({printing})" if expected is None else expected]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('echo "org/$1"', "org/a"),
        ('local name="$1"; printf "%s\\n" "org/$name"', "org/a"),
        ('case "$1" in a | b) echo org/big ;; *) echo "$1" ;; esac', "org/big"),
        ('case "$1" in x) echo org/x ;; *) echo "$1" ;; esac', "a"),
        ('case "${KIND:-}" in x) echo org/x ;; *) echo "${NAME:-org/d}" ;; esac', "org/d"),
        ('if [ "$1" = b ]; then echo org/b; elif [[ "$1" == a* ]]; then echo org/a; else echo org/c; fi', "org/a"),
        ('if [ -n "$MODEL" ]; then echo "$MODEL"; return; fi\necho org/d', "org/d"),
        ('[ "$1" = a ] && { echo org/a; return 0; }\necho org/b', "org/a"),
        ('[ "$1" = b ] && echo org/b || echo org/c', "org/c"),
        ('echo "looking for $1" >&2\n# a remark\necho -n org/m', "org/m"),
        ("more() { echo x; }; more", None),
        ("other org", "org-7B"),
        ('M=$(other "$1"); echo "$M/$MINE"', "?a-7B/$MINE"),
        ("echo one; echo two", "one\ntwo"),
        (": nothing", ""),
        # what takes more than that
        ("[ -f /etc/x ] && echo org/x || echo org/y", None),
        ("test -z x && echo org/x", None),
        ("if nvidia-smi; then echo org/x; else echo org/y; fi", None),
        ('case "$(uname)" in Linux) echo org/x ;; *) echo org/y ;; esac', None),
        ("nvidia-smi -L | wc -l", None),
        ("for x in a b; do echo $x; done", None),
        ('echo "no such model"; exit 1', None),
        ("echo org/m | tr a-z A-Z", None),
        ('pick "$1"', None),
    ],
)
def test_what_a_function_of_the_script_prints(body: str, expected: str | None) -> None:
    script = f'other() {{ echo "$1-7B"; }}\npick() {{\n{body}\n}}\nM="$(pick a)"\nvllm "$M"'
    (word,) = only(script).words[1:]
    assert shown(word) == (expected if expected is not None else "?$(pick a)")


def test_what_a_function_prints_stands_where_it_is_called() -> None:
    word = only('pick() { echo "org/m"; }\nvllm $(pick) && :').words[1]
    assert (word.value, word.span.start, word.span.end) == ("org/m", 30, 37)
    doubled = "".join(f"f{n}() {{ f{n + 1}; f{n + 1}; }}\n" for n in range(20)) + "f20() { echo x; }\n"
    assert shown(only(doubled + 'vllm "$(f0)"').words[1]) == "?$(f0)"


def test_functions_that_call_themselves_are_read_once() -> None:
    tree = """
kids() {
  vllm serve "$1"
  for child in $(pgrep -P "$1"); do kids "$child"; kids "$child"; done
}
kids m
"""
    assert [found for found in run(tree) if found[0] == "vllm"] == [["vllm", "serve", "m"]]


def test_what_only_prints_is_its_name_but_for_what_it_sets_and_runs() -> None:
    assert run('echo "starting $MODEL" $N; vllm serve m') == [["echo"], ["vllm", "serve", "m"]]
    assert run("echo ${M:=big} ${N[0]=1}; vllm serve $M") == [["echo", "big", "1"], ["vllm", "serve", "big"]]
    assert run("echo $(docker run x); vllm serve m") == [["docker", "run", "x"], ["echo"], ["vllm", "serve", "m"]]
    assert run("echo() { vllm serve $1; }\necho m") == [["vllm", "serve", "m"]]


def test_a_loop_that_sleeps_is_read_once() -> None:
    script = "n=0\nwhile [ $n -lt 60 ]; do\n  probe $n\n  sleep 2; n=$((n + 1))\ndone\nvllm serve m"
    assert run(script) == [["probe", "0"], ["sleep"], ["vllm", "serve", "m"]]


def test_what_a_sourced_library_offers_besides_starts_nothing() -> None:
    library = Value(text_of('up() { vllm serve "$1"; }\nother() { vllm serve x; }\n'))
    find = {"lib.sh": library}.get
    found = [[shown(word) for word in c.words] for c in commands(text_of("source lib.sh\nup m\n"), find=find)]
    assert found == [["vllm", "serve", "m"]]
    # a library read for itself shows all it has
    assert len(commands(library)) == 2


@pytest.mark.parametrize(
    ("body", "inert"),
    [
        ('echo "[x] $1" >&2', True),
        ("local n=0; while [ $n -lt 9 ]; do n=$((n + 1)); sleep 1; done", True),
        ("command -v curl >/dev/null || return 1; curl -s localhost | grep -q ok", True),
        ("say done", True),
        ("PORT=9", False),
        ("local PORT; export PORT=9", False),
        ("local -g PORT=9", False),
        ("for PORT in 1 2; do echo; done", False),
        ("read PORT", False),
        ("command vllm serve m", False),
        ('x=$(docker run -d image)', False),
        ("inner() { :; }", False),
        ("unset PORT", False),
        ("mine", False),
    ],
)  # fmt: skip
def test_functions_that_need_no_reading(body: str, inert: bool) -> None:
    script = f'say() {{ echo "$1"; }}\nmine() {{ vllm serve m; }}\nf() {{ {body}; }}\n'
    parsed = _source(Value(text_of(script)))
    reader, scope = _Reader(None), _Scope.of_environment({}, None)
    reader.nodes(parsed, parsed.root.children, scope, ())
    assert reader._inert("f", scope) is inert


def test_scripts_that_call_their_helpers_often_are_read_to_their_end() -> None:
    script = 'say() { local a="$1"; if [ -n "$a" ]; then echo "$a"; else printf x; fi; }\n'
    assert run(script + "say x\n" * 3000 + "vllm serve m\n") == [["vllm", "serve", "m"]]


def test_recursion_ends() -> None:
    assert run("f() { vllm x; f; }\nf")[0] == ["vllm", "x"]
    assert run('X=\'eval "$X"\'; eval "$X"; vllm y')[-1] == ["vllm", "y"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('vllm "$@" "${@}" x', ["x"]),
        ('vllm "$*" "" x"$@"', ["", "", "x"]),
        ('A=(); vllm "${A[@]}" ${A[@]+"${A[@]}"} y', ["y"]),
        ('A=(""); vllm "${A[@]}"', [""]),
    ],
)
def test_a_list_of_nothing_is_no_word(script: str, expected: list[str]) -> None:
    (found,) = commands(text_of(script), arguments=())
    assert [shown(word) for word in found.words[1:]] == expected


# -- commands inside commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        'bash -c "vllm serve m --a 1"',
        "sh -lc 'vllm serve m --a 1'",
        "/bin/bash -euxo pipefail -c 'vllm serve m --a 1' name",
        "exec nohup env X=1 bash -c 'exec vllm serve m --a 1'",
        'A="--a 1"; export A; bash -c \'vllm serve m $A\'',
        "bash -c 'vllm serve $1 --a 1' name m",
        'CMD="vllm serve m"; eval "$CMD --a 1"',
        'CMD="vllm serve m --a 1"; $CMD',
        'CMD=(vllm serve m --a 1); exec "${CMD[@]}"',
        'CMD="vllm serve m"; bash -c "$CMD --a 1"',
        "sudo -u user -E timeout -k 5 60 nice -n 10 vllm serve m --a 1",
        "time command exec -a name vllm serve m --a 1",
        "env -u HOME A=b vllm serve m --a 1",
    ],
)  # fmt: skip
def test_wrappers_and_nested_shells(script: str) -> None:
    assert [word.value for word in only(script).words] == ["vllm", "serve", "m", "--a", "1"]


def test_an_inner_shell_sees_exported_variables_only() -> None:
    assert run("A=1; export B=2; bash -c 'vllm ${A:-none} $B'") == [["vllm", "none", "2"]]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("set -a; A=1; set +a; B=2", "1 none"),
        ("set -eauo pipefail\nA=1 B=2", "1 2"),
        ("set -o allexport\nif true; then A=1; fi\nset +o allexport; B=2", "1 none"),
        ("set -- -a; A=1; B=2", "none none"),
        ("set -euo pipefail; A=1; export B=2", "none 2"),
        ("(set -a; A=1); B=2", "none none"),
    ],
)
def test_a_script_may_export_all_that_it_sets(script: str, expected: str) -> None:
    assert run(f"{script}\nbash -c 'vllm ${{A:-none}} ${{B:-none}}'") == [["vllm", *expected.split()]]


def test_unknown_text_in_a_nested_shell_may_be_several_words() -> None:
    assert run('bash -c "vllm serve $MODEL --x \\"$Y\\""') == [["vllm", "serve", "??$MODEL", "--x", "?$Y"]]


def test_scripts_that_are_at_hand() -> None:
    files = {"/run.sh": "#!/bin/bash\nvllm serve $1 $X\n", "/env.sh": "X=5\n"}

    def find(path: str) -> Value | None:
        return Value(text_of(files[path])) if path in files else None

    def shown_all(script: str) -> list[list[str]]:
        return [[shown(word) for word in found.words] for found in commands(text_of(script), find=find)]

    assert shown_all("bash /run.sh m") == [["vllm", "serve", "m", "??$X"]]
    assert shown_all("/run.sh m") == [["vllm", "serve", "m", "??$X"]]
    assert shown_all(". /env.sh; export X; /run.sh m") == [["vllm", "serve", "m", "5"]]
    assert shown_all("bash /absent.sh m") == [["bash", "/absent.sh", "m"]]


def test_words_that_no_shell_has_read() -> None:
    def found(line: str) -> list[list[str]]:
        result = commands_of_words(split_words(text_of(line)), environment(X="1"))
        return [[shown(word) for word in command.words] for command in result]

    assert found("vllm serve '$X'") == [["vllm", "serve", "$X"]]
    assert found("sh -c 'vllm serve $X'") == [["vllm", "serve", "1"]]
    assert found("cd 'a b'") == [["cd", "a b"]]
    assert commands_of_words([]) == []


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_scripts_beyond_all_measure_are_refused() -> None:
    with pytest.raises(TooLargeError):
        commands(text_of("x" * 400_000))
    with pytest.raises(TooLargeError):
        commands(text_of("A=xxxxxxxxxx\n" + "A=$A$A$A$A\n" * 40))
    with pytest.raises(TooLargeError):
        commands(text_of("a\n" * 30_000))


def test_a_broken_script_still_gives_its_commands() -> None:
    assert ["vllm", "serve", "x"] in run("if [ -n x ]; then\nvllm serve x\n")
    assert run('vllm serve "open')[0][:2] == ["vllm", "serve"]


_PIECES = [
    "vllm serve m", " --a", " ", "\n", ";", "&&", "|", "\\\n", "'", '"', "$X", "${X:-d}", "${X", "$(", ")", "((", "))",
    "{", "}", "[", "]", "if ", "then ", "fi\n", "for i in 1 2; do ", "done\n", "case x in ", "esac\n", "f() {", "<<E\n",
    "E\n", "export A=1 ", "A=(1 2) ", '"${A[@]}"', "é😀", "`", "#", "eval ", "bash -c ", "$1", "shift\n", "while ",
    "do ",
]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(_PIECES), max_size=25))
def test_any_script_is_read_with_consistent_positions(pieces: list[str]) -> None:
    script = "".join(pieces)
    for command in commands(text_of(script)):
        for word in command.words:
            at = 0
            for piece in word.text.pieces:
                assert 0 <= piece.span.start <= piece.span.end <= len(script)
                if piece.exact:
                    assert piece.span.text == word.value[at : at + piece.length]
                at += piece.length
            assert at == len(word.value)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first texts wait for Unicode's tables
@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(max_size=8), max_size=3))
def test_json_in_quotes_comes_through(value: dict[str, object]) -> None:
    written = json.dumps(value).replace("'", "")
    found = only(f"vllm serve m --x '{written}'")
    assert found.words[-1].value == written


@pytest.mark.parametrize(
    ("script", "runs"),
    [
        ("cp /etc/start.sh /tmp/x.sh && bash /tmp/x.sh", True),
        ("cp -p /etc/start.sh /tmp/; chmod +x /tmp/start.sh; /tmp/start.sh", True),
        ("ln -s /etc/start.sh /tmp/x.sh; exec /tmp/x.sh", True),
        ("tr -d '\\r' < /etc/start.sh > /tmp/x.sh && bash /tmp/x.sh", True),
        ("cat /etc/start.sh > /tmp/x.sh; sh /tmp/x.sh", True),
        ("cat < /etc/start.sh > /tmp/x.sh; sh /tmp/x.sh", True),
        ("sed 's/\\r$//' /etc/start.sh > /tmp/x.sh; sh /tmp/x.sh", True),
        ("cp /etc/start.sh /tmp/a.sh; mv /tmp/a.sh /tmp/b.sh; sh /tmp/b.sh", True),
        ("sed 's/org/other/' /etc/start.sh > /tmp/x.sh; sh /tmp/x.sh", False),  # another text
        ("cp /etc/start.sh /tmp/x.sh", False),
        ("cp $FROM /tmp/x.sh; sh /tmp/x.sh", False),
        ("cp /etc/start.sh /etc/other.sh /tmp; sh /tmp/x.sh", False),
        ("cat /etc/start.sh; sh /tmp/x.sh", False),
        ("tr -d x < /etc/absent.sh > /tmp/x.sh; sh /tmp/x.sh", False),
        ("cp; cat >; tr < ; sed", False),
    ],
)
def test_scripts_that_are_copied_before_they_run(script: str, runs: bool) -> None:
    def find(path: str) -> Value | None:
        return Value(text_of("vllm serve org/m\n")) if path == "/etc/start.sh" else None

    found = [command for command in commands(text_of(script), find=find) if command.words[0].value == "vllm"]
    assert [shown(word) for command in found for word in command.words[1:]] == (["serve", "org/m"] if runs else [])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('sh -c \'exec vllm serve "$0" "$@"\' m --a 1', ["serve", "m", "--a", "1"]),
        ("bash -lc 'vllm serve $0 $1' m n o", ["serve", "m", "n"]),
        ("sh -c 'f() { vllm serve $0 $1; }; f n' m", ["serve", "m", "n"]),
        ("sh -c 'vllm serve $0'", ["serve", "??$0"]),
        ("vllm serve $0", ["serve", "??$0"]),
    ],
)
def test_the_name_that_a_script_in_a_word_is_given(script: str, expected: list[str]) -> None:
    assert words(script) == expected
