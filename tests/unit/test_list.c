/* SPDX-License-Identifier: MIT */
#include "pool/list.h"

#include <criterion/criterion.h>

struct item {
	int value;
	struct list link;
};

static struct list head, other;
static struct item items[4];

static void
setup(void)
{
	int i;

	list_init(&head);
	list_init(&other);
	for (i = 0; i < 4; i++) {
		items[i].value = i;
		list_init(&items[i].link);
	}
}

TestSuite(list, .init = setup);

/* The values in order, as one decimal number; the way back must say the same. */
static int
forwards(const struct list *list)
{
	int number = 0, back = 0, digit = 1;

	for (struct list *at = list->next; at != list; at = at->next)
		number = number * 10 + list_entry(at, struct item, link)->value + 1;
	for (struct list *at = list->prev; at != list; at = at->prev, digit *= 10)
		back += digit * (list_entry(at, struct item, link)->value + 1);
	cr_expect_eq(number, back, "forwards %d, backwards %d", number, back);
	return number;
}

Test(list, elements_go_to_either_end_and_leave_from_anywhere)
{
	cr_expect(list_is_empty(&head));
	list_append(&head, &items[1].link);
	list_append(&head, &items[2].link);
	list_prepend(&head, &items[0].link);
	cr_expect_eq(forwards(&head), 123);
	list_remove(&items[1].link);
	cr_expect_eq(forwards(&head), 13);
	cr_expect(list_is_empty(&items[1].link), "a removed element is still linked");
	list_remove(&items[1].link);
	cr_expect_eq(forwards(&head), 13, "removing it again changed the list");
	list_remove(&items[0].link);
	list_remove(&items[2].link);
	cr_expect(list_is_empty(&head));
}

Test(list, a_splice_moves_all_to_the_end)
{
	list_append(&head, &items[0].link);
	list_append(&other, &items[1].link);
	list_append(&other, &items[2].link);
	list_splice(&head, &other);
	cr_expect_eq(forwards(&head), 123);
	cr_expect(list_is_empty(&other), "the source is not empty");
	list_splice(&head, &other);
	cr_expect_eq(forwards(&head), 123, "an empty splice changed the list");
	list_splice(&other, &head);
	cr_expect_eq(forwards(&other), 123, "a splice into an empty list");
	cr_expect(list_is_empty(&head), "the source is not empty");
}
