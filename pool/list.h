/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Circular doubly linked lists, linked through the elements. The head is a link of its own; an
 * element that is on no list points at itself. Locking: the caller's.
 */
#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

#define list_entry(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

static inline void
list_init(struct list *list)
{
	list->prev = list->next = list;
}

static inline bool
list_is_empty(const struct list *list)
{
	return list->next == list;
}

static inline void
list_append(struct list *head, struct list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void
list_prepend(struct list *head, struct list *link)
{
	list_append(head->next, link);
}

static inline void
list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

/* Move all elements of from to the end of to; from is empty afterwards. */
static inline void
list_splice(struct list *to, struct list *from)
{
	if (list_is_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}
