#!/bin/sh
# Usage: slugify.sh TITLE
# Turns a title into a slug: lower case, words joined by single dashes, no dash at either end.
set -eu
LC_ALL=C
export LC_ALL

printf '%s\n' "$1" |
    tr 'A-Z' 'a-z' |
    tr -c 'a-z0-9\n' '-'
