/* The change feed: writes to the graph, the notes of its trigger, consumers, and an entry whose value depends on all of
 * the writes. A world of its own beside `lease.pml` and `tags.pml`, whose steps are taken here as proven: to invalidate is
 * one step. Writes are numbered in the order in which their transactions begin, and commit in any order.
 */

#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#define BIT(n) (1 << (n))
#define NOBODY 255

/* the graph: writes that are committed, and notes, by the write that each is of */
byte committed, notes;
byte id_of[WRITES];                     /* the graph's own id of a note: that of one which is gone is used again */
byte passed;                            /* writes that a cursor has passed: with POSITION_CURSOR alone */

/* the entry, and the record with the run that holds its lease; sets of writes */
bit e_there, e_stale, r_met;
byte e_saw, e_marks, r_marks;
byte r_run = NOBODY;

/* What no part of the system knows: changes that are invalidated, notes that are gone. */
byte invalidated, removed;
byte writes_begun, runs_begun;
hidden byte i_, j_;

inline must(condition, number) {
  if
  :: !(condition) -> printf("violated|%d\n", number); assert(false)
  :: else
  fi
}

/* Once its note is gone, nobody else would invalidate a change. */
inline check() { must(!e_there || e_stale || !(removed & committed & ~e_saw), 3) }

/* trigger.cypher */
inline note(i) {
#ifdef BY_ID_ALONE
  d_step {
    id_of[i] = 0; i_ = 0;
    do
    :: i_ < WRITES && (notes & BIT(i_)) && id_of[i_] == id_of[i] -> id_of[i]++; i_ = 0
    :: i_ < WRITES && !((notes & BIT(i_)) && id_of[i_] == id_of[i]) -> i_++
    :: else -> i_ = 0; break
    od
  };
#endif
  notes = notes | BIT(i); printf("note|%d\n", i)
}

inline commit_write(i) { committed = committed | BIT(i); printf("write|%d\n", i) }

/* A transaction of somebody that the cache does not know. */
proctype Writer(byte i) {
  atomic { writes_begun == i; writes_begun++; printf("begin|%d\n", i) };
#ifdef NOTED_BEFORE
  atomic { note(i) };
#endif
  if
#ifndef NOTED_BEFORE
#ifndef NOTED_AFTERWARDS
  :: atomic { commit_write(i); note(i) }
#else
  :: atomic { commit_write(i) };
    if
    :: atomic { note(i) }
    :: atomic { printf("died|writer\n") }
    fi
#endif
#else
  :: atomic { commit_write(i) }
#endif
  :: atomic { printf("rollback|%d\n", i) }
  fi
}

/* Outbox.take: some notes, in one read, and a bookmark after it, which covers all that this read has seen. */
inline take() {
  atomic {
    (notes & ~passed) ->
    if
    :: taken = notes & ~passed
    :: taken = (notes & ~passed) & -(notes & ~passed)   /* as many as there is room for */
    fi;
#ifndef BOOKMARK_BEFORE_READ
    mark = committed;
#endif
    printf("take|%d|%d|%d\n", id, taken, mark)
  }
}

/* TagWalk.invalidate, with the bookmark */
inline invalidate() {
  e_stale = e_there; r_met = (r_run != NOBODY);
#ifdef FOLLOWER
  r_marks = r_marks | mark;
#endif
  invalidated = invalidated | taken; printf("invalidate|%d\n", id)
}

/* Outbox.acknowledge */
inline acknowledge() {
#ifdef BY_LABEL
  taken = notes;
#endif
#ifdef BY_ID_ALONE
  d_step {
    i_ = 0;
    do
    :: i_ < WRITES && j_ < WRITES ->
      if
      :: (taken & BIT(i_)) && (notes & BIT(j_)) && id_of[i_] == id_of[j_] ->
        notes = notes & ~BIT(j_); removed = removed | BIT(j_)
      :: else
      fi;
      j_++
    :: i_ < WRITES && j_ == WRITES -> i_++; j_ = 0
    :: else -> i_ = 0; j_ = 0; break
    od
  };
#else
  removed = removed | (taken & notes); notes = notes & ~taken;
#endif
#ifdef POSITION_CURSOR
  passed = passed | taken | taken >> 1 | taken >> 2;
#endif
  printf("acknowledge|%d|%d\n", id, taken); check()
}

/* Its lease is left out: it may run out at any time, so that any number of them are at work. One that dies begins again. */
proctype Consumer(byte id) {
  byte taken, mark;
endbegin:
#ifdef BOOKMARK_BEFORE_READ
  atomic { mark = committed };
#endif
endidle:
  take();
  do
#ifdef ACKNOWLEDGED_FIRST
  :: atomic { acknowledge() }; if :: atomic { invalidate() } :: atomic { printf("died|%d\n", id) } fi; break
#else
  :: atomic { invalidate() }; if :: atomic { acknowledge() } :: atomic { printf("died|%d\n", id) } fi; break
#endif
  :: atomic { printf("died|%d\n", id) }; break
  od;
  atomic { taken = 0; mark = 0; goto endbegin }
}

/* One refresh by a worker, at any time. A follower of the graph may lag behind all that the load has no bookmark of. */
proctype Run(byte id) {
  byte informed, saw;
  atomic { runs_begun == id - 1; runs_begun++ };
  atomic { r_run = id; r_met = 0; informed = r_marks | e_marks; printf("acquire|%d\n", id) };
  atomic {
    if
    :: saw = committed
#ifdef FOLLOWER
    :: saw = informed
#endif
    fi;
    printf("load|%d|%d\n", id, saw)
  };
  atomic {
    if
    :: r_run == id ->
      e_there = 1; e_stale = r_met; e_saw = saw; e_marks = informed;
      r_marks = (r_met -> r_marks : 0); r_run = NOBODY; r_met = 0; printf("commit|%d\n", id); check()
    :: else -> printf("rejected|%d\n", id)
    fi;
    informed = 0; saw = 0
  }
}

#ifdef BY_HAND
/* Somebody who deletes a note: one whose change is invalidated, or any. */
proctype Hand() {
  byte i;
  atomic {
    if
    :: i = 0
    :: i = WRITES - 1
    fi
  };
endby_hand:
  atomic {
#ifdef UNREAD
    (notes & BIT(i)) ->
#else
    (notes & invalidated & BIT(i)) ->
#endif
    notes = notes & ~BIT(i); removed = removed | BIT(i); printf("by_hand|%d\n", i); check()
  }
}
#endif

/* Nothing happens any more: nothing is left of the writes but what the entry has, or that it is stale. */
proctype Rest() {
  timeout;
  atomic { must(!e_there || e_stale || !(committed & ~e_saw), 3); must(!(notes & ~passed), 4) }
}

init {
  byte i;
  atomic {
    e_there = 1;
    for (i : 0 .. WRITES - 1) { run Writer(i) }
    for (i : 1 .. RUNS) { run Run(i) }
    for (i : 1 .. CONSUMERS) { run Consumer(i) }
#ifdef BY_HAND
    run Hand();
#endif
    run Rest();
    i = 0
  }
}
