/* Tags: one tag, and keys whose values depend on it. A world of its own beside `lease.pml`, whose steps are taken here as
 * proven: a key has an entry, which is fresh or stale, and a record with at most one run, which an invalidation may meet.
 *
 * Tag numbers come from the tag clock. `time` is Redis' clock, which goes on with every tick, also where the number that
 * was kept is lost. Anyone may pause between two steps for any time, or die: in Spin nobody has to go on.
 */

#ifndef KEYS
#define KEYS 1
#endif
#define BIT(n) (1 << (n))
#define NOBODY 255

/* the keys: entry, and record with the run that holds its lease */
bit e_there[KEYS], e_stale[KEYS];
byte e_saw[KEYS];                       /* invalidations whose write the entry's load has seen */
byte r_run[KEYS];                       /* NOBODY: no record, or none with a lease */
bit r_met[KEYS], r_met_hard[KEYS], r_marks[KEYS], e_marks[KEYS];

/* the tag: clock, state, index (the score of a member, 0: not in it), kept invalidations and how far they are */
byte clock, time;
byte last, last_hard;
bit marks;                              /* the state has the bookmark of the newest invalidation */
byte score[KEYS], top;
byte pending, marked, done_at[INVALIDATIONS];
byte number_of[INVALIDATIONS];
byte kind_hard;                         /* which invalidations are hard */

/* What no part of the system knows: whose write is done; which invalidations have returned. A follower is behind. */
byte written, returned;

/* What the actors have begun, so that equal ones begin in one order only. */
byte runs_begun, invalidations_begun;

hidden byte k_;

inline must(condition) {
  if
  :: !(condition) -> printf("violated|3\n"); assert(false)
  :: else
  fi
}

/* What has returned must show, and so must what was kept and is pending no more: nobody else would finish it. */
#define DUE (returned | (marked & ~pending))
inline check() {
  d_step {
    k_ = 0;
    do
    :: k_ < KEYS ->
      must(!e_there[k_] || e_stale[k_] || !(DUE & ~e_saw[k_]));
      must(!e_there[k_] || !(DUE & kind_hard & ~e_saw[k_]));
      k_++
    :: else -> k_ = 0; break
    od
  }
}

/* invalidate.lua, of one key */
inline invalidate(key, hard) {
  if
  :: hard -> e_there[key] = 0; e_stale[key] = 0; e_saw[key] = 0
  :: else -> e_stale[key] = e_there[key]
  fi;
  if
  :: r_run[key] != NOBODY -> r_met[key] = 1; r_met_hard[key] = r_met_hard[key] || hard
  :: else
  fi;
#ifdef FOLLOWER
  r_marks[key] = 1;
#endif
  printf("invalidate|%d|%d\n", key, hard)
}

/* tag_tick.lua */
inline tick(n) {
  time++;
#ifdef CLOCK_COUNTS_ONLY
  clock++;
#else
  clock = (time > clock -> time : clock + 1);
#endif
  n = clock; printf("tick|%d\n", n)
}

/* tag_mark.lua */
inline mark(i, n) {
#ifdef LAST_IS_N
  last = n;
#else
  last = (n > last -> n : last);
#endif
  if
  :: kind_hard & BIT(i) -> last_hard = (n > last_hard -> n : last_hard)
  :: else
  fi;
#ifdef FOLLOWER
  marks = 1;
#endif
  marked = marked | BIT(i); printf("mark|%d|%d\n", i, n)
}

/* The first member from `at` on, as tag_page.lua gives it; `found` is NOBODY after the last one. */
inline page(at, found) {
  d_step {
    found = NOBODY; k_ = 0;
    do
    :: k_ < KEYS ->
      if
      :: score[k_] >= at && score[k_] > 0 && (found == NOBODY || score[k_] < score[found]) -> found = k_
      :: else
      fi;
      k_++
    :: else -> k_ = 0; break
    od
  }
}

/* tag_keep.lua, tag_finish.lua */
inline keep(i) {
  pending = pending | BIT(i); printf("keep|%d\n", i)
}

inline finish(i) {
#ifdef PENDING_BY_TAG
  pending = 0;
#else
  pending = pending & ~BIT(i);
#endif
  printf("finish|%d\n", i)
}

/* api_client.protocol.tags: pages, until there is none. What is kept for one who takes over is of a world with one. */
#ifdef FINISHER
#define KEPT(what, value) what[i] = value
#else
#define KEPT(what, value) skip
#endif
#ifdef WALK_ENDS_AT_MARK
#define ENDS_AT(where) end = where
#else
#define ENDS_AT(where) skip
#endif
inline walk(i) {
  do
  :: atomic {
      page(at, member);
      if
      :: member == NOBODY -> break
#ifdef WALK_ENDS_AT_MARK
      :: member != NOBODY && score[member] > end -> member = NOBODY; break
      :: member != NOBODY && score[member] <= end -> next = score[member] + 1
#else
      :: member != NOBODY -> next = score[member] + 1
#endif
      fi
    };
#ifdef CURSOR_BEFORE_ITS_PAGE
    atomic { KEPT(done_at, next) };
#endif
    atomic { invalidate(member, ((kind_hard & BIT(i)) != 0)); member = NOBODY };
    atomic { at = next; next = 0; KEPT(done_at, at) }
  od
}

proctype Invalidator(byte i) {
  byte n, at, member, next, end;
  atomic {
    invalidations_begun == i;
    invalidations_begun++; member = NOBODY; written = written | BIT(i);
#ifndef NO_HARD
    if
    :: kind_hard = kind_hard | BIT(i)
    :: skip
    fi;
#endif
    printf("write|%d|%d\n", i, (kind_hard & BIT(i)) != 0)
  };
#ifdef MARK_BEFORE_TICK
  atomic { keep(i); n = clock; KEPT(number_of, n) };
  atomic { mark(i, n) };
  atomic { tick(n) };
#else
  atomic { tick(n); KEPT(number_of, n) };
#ifdef KEEP_AFTER_MARK
  atomic { mark(i, n); check() };
  atomic { keep(i) };
#else
  atomic { keep(i) };
#ifndef WALK_BEFORE_MARK
  atomic { mark(i, n); ENDS_AT(top) };
#endif
#endif
#endif
#ifdef FINISH_BEFORE_WALK
  atomic { finish(i); check() };
#endif
  walk(i);
#ifdef WALK_BEFORE_MARK
  atomic { mark(i, n) };
#endif
  atomic { finish(i); returned = returned | BIT(i); n = 0; at = 0; end = 0; printf("return|%d\n", i); check() }
}

/* A worker that takes over what nobody moves (tag_take.lua). It marks again, since the mark may be missing. */
proctype Finisher() {
  byte i, at, member, next, end;
endtakes:
  atomic {
    if
    :: pending & BIT(0) -> i = 0
#if INVALIDATIONS > 1
    :: pending & BIT(1) -> i = 1
#endif
    fi;
    member = NOBODY; printf("take|%d\n", i)
  };
  atomic { mark(i, number_of[i]); at = done_at[i]; ENDS_AT(top) };
  walk(i);
  atomic { finish(i); check() }
}

inline acquire(key) {
  r_run[key] = id; r_met[key] = 0; r_met_hard[key] = 0;
  informed = r_marks[key] || e_marks[key];
  printf("acquire|%d|%d\n", id, key)
}

/* In a world with followers of the graph a load that was not given the bookmark may be of before the write. */
inline load() {
  saw = written;
#ifdef FOLLOWER
  if
  :: !informed -> saw = 0
  :: skip
  fi;
#endif
  printf("load|%d|%d\n", id, saw)
}

/* tag_register.lua. A member's score only grows: it moves behind all others. */
inline register(key) {
  top++; score[key] = top;
  seen_last = last; seen_hard = last_hard; seen_marks = marks;
  printf("register|%d|%d|%d\n", id, key, last)
}

#ifdef MARKS_IGNORED
#define UNINFORMED 0
#else
#define UNINFORMED (seen_marks && !informed)
#endif

/* One refresh by a worker: of any key, at any time. Whoever acquires later has the lease. */
proctype Run(byte id) {
  byte key, clock_read, saw, seen_last, seen_hard;
  bit informed, seen_marks;
  atomic {
    runs_begun == id - 1;
    runs_begun++;
    if
    :: key = 0
#if KEYS > 1
    :: key = 1
#endif
    fi
  };
#ifdef CLOCK_AFTER_LOAD
  atomic { acquire(key) };
  atomic { load() };
  atomic { clock_read = clock; printf("clock|%d|%d\n", id, clock_read) };
#else
  if
  :: atomic { clock_read = clock; printf("clock|%d|%d\n", id, clock_read) }; atomic { acquire(key) } /* tag_clock.lua */
  :: atomic { acquire(key) }; atomic { clock_read = clock; printf("clock|%d|%d\n", id, clock_read) }
  fi;
  atomic { load() };
#endif
#ifndef REGISTER_AFTER_COMMIT
  atomic { register(key) };
  atomic {
    if
#ifndef LAST_IGNORED
    :: seen_last > clock_read || UNINFORMED -> invalidate(key, (seen_hard > clock_read))
#endif
    :: else
    fi;
    seen_last = 0; seen_hard = 0; clock_read = 0; seen_marks = 0
  };
#endif
  atomic {
    if
    :: r_run[key] == id ->
      if
      :: !r_met_hard[key] -> e_there[key] = 1; e_stale[key] = r_met[key]; e_saw[key] = saw; e_marks[key] = informed
      :: else
      fi;
      r_marks[key] = r_met[key] && r_marks[key];
      r_run[key] = NOBODY; r_met[key] = 0; r_met_hard[key] = 0;
      printf("commit|%d|%d\n", id, key); check()
    :: else -> printf("rejected|%d\n", id)
    fi
  };
#ifdef REGISTER_AFTER_COMMIT
  atomic { register(key) };
  atomic {
    if
    :: seen_last > clock_read -> invalidate(key, (seen_hard > clock_read))
    :: else
    fi
  }
#endif
  atomic { saw = 0; seen_last = 0; seen_hard = 0; clock_read = 0; informed = 0; seen_marks = 0; key = 0 }
}

#ifdef FAULT
/* What Redis may lose. */
proctype Redis() {
  atomic {
    if
#ifdef LOSES_CLOCK
    :: clock = 0; printf("lost|clock\n")
#endif
#ifdef LOSES_KEY
    :: r_run[0] = NOBODY; r_met[0] = 0; r_met_hard[0] = 0; r_marks[0] = 0; printf("lost|record\n")
    :: e_there[0] = 0; e_stale[0] = 0; e_saw[0] = 0; e_marks[0] = 0; printf("lost|entry\n")
#endif
#ifdef LOSES_INDEX
    :: score[0] = 0; printf("lost|index\n")
#endif
#ifdef LOSES_STATE
    :: last = 0; last_hard = 0; marks = 0; printf("lost|state\n")
#endif
    fi
  }
}
#endif

init {
  byte i;
  atomic {
    for (i : 0 .. KEYS - 1) {
      r_run[i] = NOBODY;
      if
      :: top++; score[i] = top; e_there[i] = 1; printf("entry|%d\n", i)
      :: skip
      fi
    }
    for (i : 0 .. INVALIDATIONS - 1) { run Invalidator(i) }
    for (i : 1 .. RUNS) { run Run(i) }
#ifdef FINISHER
    run Finisher();
#endif
#ifdef FAULT
    run Redis();
#endif
    i = 0
  }
}
