#!/bin/bash
# What tools/site.py makes of pages in two languages. Needs cmark-gfm, which `make site`
# installs.
root=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/lib.sh"
command -v cmark-gfm >/dev/null || {
    echo "skipped: no cmark-gfm"
    exit 77
}

mkdir -p docs/zh docs/pictures configs tools
cp "$root"/tools/{site,markdown_text}.py "$root/tools/site.css" tools
cat >README.md <<'MD'
# Trefoil

[A page](docs/page.md#a--b), [a recipe](configs/demo.yaml), [all](docs/README.md).
MD
printf '# Documents\n\n## Start\n\n- [Page](page.md): of tests\n' >docs/README.md
cat >docs/page.md <<'MD'
# Page

## A & b

![Picture](pictures/one.svg) | `a <b>`

| x | y |
|---|---|
| 1 | 2 |
MD
touch docs/pictures/one.svg configs/demo.yaml
printf '# Trefoil\n\n[页面](docs/zh/page.md#第二)\n' >README.zh.md
printf '# 文档\n\n## 开始\n\n- [页面](page.md)：测试\n' >docs/zh/README.md
printf '# 页面\n\n## 第二\n\n![图](../pictures/one.svg)\n' >docs/zh/page.md

tools/site.py site || fail "no site"
has() { grep -qF -- "$2" "site/$1" || fail "site/$1 lacks '$2': $(cat "site/$1")"; }
for file in index.html page.html zh/index.html zh/page.html site.css pictures/one.svg files/configs/demo.yaml; do
    [ -e "site/$file" ] || fail "no site/$file"
done
has index.html 'href="page.html#a--b"'
has index.html 'href="files/configs/demo.yaml"'
has page.html '<h2 id="a--b">A &amp; b'
has page.html 'hreflang="zh" href="zh/page.html">中文</a>'
has page.html 'src="pictures/one.svg"'
has page.html '<a href="page.html" aria-current="page">Page</a>'
has zh/page.html 'hreflang="en" href="../page.html">English</a>'
has zh/page.html 'src="../pictures/one.svg"'
has zh/index.html 'href="../zh/page.html#第二"'
has zh/page.html '<html lang="zh">'
! grep -rE '(src|href)="(https?:)?//' site || fail "the site loads things from elsewhere"

# Once more over itself; never over something else.
tools/site.py site >/dev/null || fail "not twice"
mkdir precious && touch precious/file
tools/site.py precious 2>err && fail "it wrote over other files"
[ -e precious/file ] || fail "it removed other files"

printf '\n[nowhere](docs/page.md#c)\n' >>README.md
tools/site.py site >out && fail "a dead link is not found"
grep -q "index.html: 'page.html#c' leads nowhere" out || fail "dead link: $(cat out)"
