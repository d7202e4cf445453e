#!/bin/sh
# Run source_review.py as a person would: start it, meet its questions, answer from a second process, read the report.
# What goes in and comes out stands here and nowhere else.
set -eu

graph=examples/source_review.py:graph
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
db=$folder/demo.db
report=$folder/report.md
input='{"root": ".", "report": "'$report'"}'
answer='{"decision": "approve"}'

say() { printf '\n== %s\n' "$1"; }

# Exit codes of the command line: 0 done, 2 usage, 3 paused, 4 failed.
expect() {
    wanted=$1
    shift
    printf '$ %s\n' "$*"
    code=0
    "$@" || code=$?
    if [ "$code" -ne "$wanted" ]; then
        echo "demo: exit code $code, expected $wanted" >&2
        exit 1
    fi
}

say "Review this repository, one task per file, until a person is asked"
expect 3 pregel run "$graph" --input "$input" --thread demo --db "$db"

say "Answer from a second process; only what is left runs"
expect 0 pregel resume "$graph" --thread demo --db "$db" --answer "$answer"

say "The report"
cat "$report"
