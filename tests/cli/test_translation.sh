#!/bin/bash
# What tools/check_translation.py and tools/check_links.py find, in a project of two pages.
root=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/lib.sh"

mkdir -p docs/zh tools
cp "$root"/tools/{check_translation,check_links,markdown_text}.py tools

cat >README.md <<'MD'
# Clover

See [the page](docs/page.md#second).
MD
cat >docs/page.md <<'MD'
# Page

## First

```sh
build/trefoil config # all keys
```

## Second

| a | b |
|---|---|
| 1 | 2 |

<!-- bench:one -->
3.14 s
<!-- /bench:one -->
MD

# finds PATTERN: the check fails and says it. passes: it does not.
finds() {
    local tool=$1 pattern=$2
    "tools/$tool.py" >found.txt 2>&1 && fail "$tool does not complain of: $pattern"
    grep -qE -- "$pattern" found.txt || fail "$tool does not say '$pattern': $(cat found.txt)"
}
passes() {
    "$@" >found.txt 2>&1 || fail "'$*' complains: $(cat found.txt)"
}

passes tools/check_translation.py # there is none
passes tools/check_links.py

# A translation of one page only, then of both, then stamped.
cat >README.zh.md <<'MD'
<!-- en: clover -->
# 三叶草

见[页面](docs/zh/page.md#第二)。
MD
finds check_translation "docs/zh/page.md is not there"
finds check_links "README.zh.md:4: .* leads nowhere"
cat >docs/zh/page.md <<'MD'
<!-- en: page -->
# 页面

<!-- en: first -->
## 第一

```sh
build/trefoil config # 所有配置项
```
MD
finds check_translation "section 'second' \(docs/page.md:9\) is missing"
finds check_links "no heading '#第二'"
cat >>docs/zh/page.md <<'MD'

<!-- en: second -->
## 第二

| 甲 | 乙 |
|---|---|
| 1 | 2 |
MD
finds check_translation "section 'first' is not that of docs/page.md:3 as it is now"
passes tools/check_translation.py --stamp
passes tools/check_translation.py
passes tools/check_links.py

# What does not count: other line breaks, measured figures.
sed -i 's/^3.14 s/2.71 s/; s/^See /See\n/' docs/page.md README.md
passes tools/check_translation.py

# A change of the English page; of commands, tables and links of the Chinese one.
sed -i 's/all keys/every key/' docs/page.md
finds check_translation "docs/zh/page.md:5: section 'first' is not that of"
passes tools/check_translation.py --stamp docs/page.md
sed -i 's/trefoil config #/trefoil version #/' docs/zh/page.md
finds check_translation "section 'first' has other commands"
sed -i 's/trefoil version #/trefoil config #/; /^| 1 | 2 |$/d' docs/zh/page.md
finds check_translation "has 2 rows of tables, docs/page.md:9 has 3"
echo '| 1 | 2 |' >>docs/zh/page.md
passes tools/check_translation.py
sed -i 's#docs/zh/page.md#docs/page.md#; s/#第二/#second/' README.zh.md
finds check_translation "links to 'docs/page.md#second', of which there is a translation"
sed -i 's#docs/page.md#docs/zh/page.md#; s/#second/#第二/' README.zh.md
passes tools/check_translation.py

# Pages and sections that are gone.
sed -i 's/^## Second/## Third/' docs/page.md
finds check_translation "section 'second' is not in docs/page.md"
rm docs/page.md
finds check_translation "docs/zh/page.md translates docs/page.md, which is gone"
finds check_links "README.md:4: 'docs/page.md#second' leads nowhere"
passes tools/check_translation.py --new README.md
grep -qE '^<!-- en: clover [0-9a-f]{12} -->$' found.txt || fail "--new prints no stamps: $(cat found.txt)"
