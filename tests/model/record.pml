/* One key: its entry, its lease record, and what the checker remembers beside them.
 *
 * Numbers are small: the clock only counts the draws, and what is compared is their order. A deadline is a bit: `until`
 * has passed, or not. Time passes when somebody looks (`look`), for nobody can tell earlier. A second bit, `r_back`: the
 * clock is behind `since`, so `until` is farther than it was set for, and nobody can wait for it.
 */

mtype = { idle, queued, running, retrying, cooling, invalidated };

#define ANY 255        /* a claim for whatever entry is there */
#define BIT(run) (1 << (run))

/* the entry: `e_gen` above `e_token` is stale by an invalidation */
bit e_there, e_marks;
byte e_token, e_nonce, e_gen;

/* the lease record; idle is absent, and all else is 0 then */
mtype r_state = idle;
bit r_over, r_back, r_ttl, r_marks;
byte r_number, r_claim, r_claim_number, r_token, r_nonce, r_ticket, r_gen, r_hard, r_ended_by;

/* Redis' clock, and the broker: the numbers of the claims whose message was published, the retry's ticket */
byte clock;
int published;
byte ticket, ticket_number;

/* What no part of the system knows. A bit a run: it reads; an invalidation came since its read began; a hard one did;
 * it was given the newest bookmark. The entry's value was read before the newest invalidation. The follower of the
 * graph is behind. A value within its grace is there. The newest acquire, whose runs were stored, the highest token. */
byte reading, overtaken, overtaken_hard, informed, stored, newest_nonce, newest_token, highest, loads;
bit e_overtaken, behind, in_grace;

/* Of one step alone: in no state. */
hidden byte status, number, wanted, mine, shown;

#ifndef PROPERTY
#define PROPERTY 0 /* all; otherwise the one that is looked at */
#endif
inline must(condition, invariant) {
  if
  :: !(condition) && (PROPERTY == 0 || PROPERTY == invariant) -> printf("violated|%d\n", invariant); assert(false)
  :: else
  fi
}

inline forget() {
  if
  :: !e_there && r_state == idle -> highest = 0
  :: else
  fi
}

inline drop_entry() {
  e_there = 0; e_marks = 0; e_token = 0; e_nonce = 0; e_gen = 0; e_overtaken = 0; in_grace = 0
}

inline drop_record() {
  r_state = idle; r_over = 0; r_back = 0; r_ttl = 0; r_marks = 0; r_number = 0; r_claim = 0; r_claim_number = 0; r_token = 0;
  r_nonce = 0; r_ticket = 0; r_gen = 0; r_hard = 0; r_ended_by = 0
}

/* What time has done to the record since somebody looked last. */
inline look() {
#ifndef NO_LAPSE
  if
  :: skip
  :: r_state != idle && !r_over && !r_back -> r_over = 1; printf("time|until %e\n", r_state)
  :: r_back -> r_back = 0; printf("time|since %e\n", r_state) /* the old time has come again */
  fi;
#ifdef NO_RETENTION
  skip
#else
  if
  :: skip
  :: r_state != idle && r_over -> drop_record(); forget(); behind = 0; printf("time|retention\n")
  fi
#endif
#else
  skip
#endif
}

/* prelude.lua: draw */
inline draw() {
#ifdef INCR
  number = r_number + 1;
#else
  clock++;
  number = (clock > r_number -> clock : r_number + 1);
#ifndef DRAW_IGNORES_ENTRY
  if
  :: e_there && e_token >= number -> number = e_token + 1
  :: else
  fi;
  if
  :: e_there && e_gen >= number -> number = e_gen + 1
  :: else
  fi;
#endif
#endif
  assert(number < 30)
}

/* prelude.lua: is_over */
#ifdef NO_SINCE
#define OVER r_over
#else
#define OVER (r_over || r_back)
#endif
inline lasts() {
  r_over = 0; r_back = 0
}

/* prelude.lua: rest_invalidated; unclaim.lua: rest */
inline rest_invalidated() {
  r_state = invalidated; r_over = 1; r_back = 0; r_claim = 0; r_token = 0; r_nonce = 0; r_ticket = 0;
#ifndef REST_WITHOUT_TTL
  r_ttl = 1;
#endif
  skip
}

inline rest() {
  if
#ifdef RECORD_STAYS
  :: 1 -> rest_invalidated()
#endif
  :: r_gen > 0 -> rest_invalidated()
  :: else -> drop_record(); forget()
  fi
}
