/* Texts of a file in memory: whole, by lines, of JSON lines. */
#include "test.h"

#include "base/fs.h"
#include "data/text/text_documents.h"

#include <unistd.h>

static int make_dir(void **state)
{
    *state = test_make_directory();
    return 0;
}

static int remove_dir(void **state)
{
    struct error err;
    assert_ok(fs_remove_tree(*state, &err), err);
    free(*state);
    return 0;
}

static int read_list(const char *dir, struct text_list *list, const char *content,
                     enum text_list_kind kind, struct error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/texts", dir);
    assert_ok(fs_write_atomic(path, content, strlen(content), err), *err);
    return text_list_read(list, path, kind, NULL, "text", err);
}

static void test_lines__without_ends_and_empty_ones(void **state)
{
    struct text_list list;
    struct error err;
    assert_ok(
        read_list(*state, &list, "one\n\ntwo words\r\n\r\n three", TEXT_LIST_LINES, &err),
        err);
    assert_int_equal(list.n_items, 3);
    assert_string_equal(list.items[0].text, "one");
    assert_int_equal(list.items[0].line, 1);
    assert_string_equal(list.items[1].text, "two words");
    assert_int_equal(list.items[1].line, 3);
    assert_string_equal(list.items[2].text, " three");
    assert_int_equal(list.items[2].n, 6);
    text_list_release(&list);
}

static void test_whole__is_the_file_byte_for_byte(void **state)
{
    struct text_list list;
    struct error err;
    assert_ok(read_list(*state, &list, "a\n\nb\n", TEXT_LIST_WHOLE, &err), err);
    assert_int_equal(list.n_items, 1);
    assert_string_equal(list.items[0].text, "a\n\nb\n");
    text_list_release(&list);
}

static void test_json__texts_and_the_line_that_has_none(void **state)
{
    struct text_list list;
    struct error err;
    assert_ok(read_list(*state, &list, "{\"text\": \"a\\nb\"}\n\n{\"text\": \"\"}\n",
                        TEXT_LIST_JSON, &err),
              err);
    assert_int_equal(list.n_items, 2);
    assert_string_equal(list.items[0].text, "a\nb");
    assert_string_equal(list.items[1].text, "");
    text_list_release(&list);
    assert_int_equal(read_list(*state, &list, "{\"text\": \"a\"}\n{\"txt\": 1}\n",
                               TEXT_LIST_JSON, &err),
                     -1);
    assert_non_null(strstr(err.text, "texts':2: "));
    text_list_release(&list);
}

static void test_list__of_nothing_is_an_error(void **state)
{
    struct text_list list;
    struct error err;
    assert_int_equal(read_list(*state, &list, "\n\n", TEXT_LIST_LINES, &err), -1);
    assert_non_null(strstr(err.text, "has no text in it"));
    text_list_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines__without_ends_and_empty_ones),
        cmocka_unit_test(test_whole__is_the_file_byte_for_byte),
        cmocka_unit_test(test_json__texts_and_the_line_that_has_none),
        cmocka_unit_test(test_list__of_nothing_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
