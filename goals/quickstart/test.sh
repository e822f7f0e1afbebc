#!/bin/sh
# Runs slugify.sh on a few titles; fails when any slug is wrong.
cd "$(dirname "$0")" || exit 1
failed=0

expect() { # TITLE SLUG
    got=$(sh ./slugify.sh "$1")
    if [ "$got" = "$2" ]; then
        echo "ok      '$1' -> '$got'"
    else
        echo "not ok  '$1' -> '$got', expected '$2'"
        failed=$((failed + 1))
    fi
}

expect 'Hello World' 'hello-world'
expect 'Chapter 12' 'chapter-12'
expect 'Wait -- what now' 'wait-what-now'
expect '  Spaced   out  ' 'spaced-out'
expect 'Really?!' 'really'

echo "$failed failed"
[ "$failed" -eq 0 ]
