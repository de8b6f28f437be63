/* The model of the lease record, whole: what is in it is said by -D flags (tests/model/cases.py). */

#ifndef READERS
#define READERS 1
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef INVALIDATIONS
#define INVALIDATIONS 1
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef LOADS_COUNT
#define LOADS_COUNT 0
#endif
/* What a run that a hard invalidation met claims for: no entry. */
#ifdef FOLLOW_UP_FOR_ANY
#define SEEN_OF_NOTHING_STORED ANY
#else
#define SEEN_OF_NOTHING_STORED 0
#endif

#include "record.pml"
#include "failover.pml"
#include "steps.pml"
#include "actors.pml"
#include "checks.pml"

/* Whoever changes the graph: each change is followed by an invalidation. */
proctype Writer() {
  do
  :: invalidations_done < INVALIDATIONS ->
    atomic {
      look();
      if
#ifndef NO_SOFT
      :: d_step { invalidate(0) }
#endif
#ifndef NO_HARD
      :: d_step { invalidate(1) }
#endif
      fi;
      invalidations_done++
    }
  :: else -> break
  od
}

/* What Redis may do of itself, FAULTS times. */
proctype Redis() {
  byte left = FAULTS;
  do
  :: atomic {
      left > 0 ->
      left--;
      if
#ifdef LOSES_RECORD
      :: r_state != idle -> d_step { drop_record(); forget(); printf("redis|record\n") }
#endif
#ifdef LOSES_ENTRY
      :: e_there -> d_step { drop_entry(); forget(); printf("redis|entry\n") }
#endif
#ifdef RESTARTS
      :: d_step { drop_entry(); drop_record(); forget(); printf("redis|empty\n") }
#endif
#ifdef LOSES_FENCE
      :: r_state != idle ->
        d_step { r_number = 0; r_claim_number = 0; r_token = 0; r_gen = 0; r_hard = 0; printf("redis|fence\n") }
#endif
#ifdef CLOCK_STEPS_BACK
      :: clock > 0 ->
        clock--;
        do
        :: clock > 0 -> clock--
        :: break
        od;
        printf("redis|clock %d\n", clock);
        if
        :: r_state != idle && r_state != invalidated -> r_over = 0; r_back = 1; printf("time|behind %e\n", r_state)
        :: r_over && r_state != invalidated -> r_over = 0
        :: skip
        fi
#endif
#ifdef LATE_REQUESTS
      /* A request that lay in a broken connection arrives a second time, when its sender has long gone on. */
      :: runs_begun > 0 -> d_step { printf("late|\n"); acquire(1, 0, 0) }
      :: runs_begun > 1 -> d_step { printf("late|\n"); acquire(2, 0, 0) }
      :: readers_begun > 0 -> d_step { printf("late|\n"); claim(1, ANY, 0) }
#endif
      :: skip
      fi
    }
  :: left == 0 -> break
  od
}

init {
  byte i;
  atomic {
    if
    :: skip
    :: d_step {
        e_there = 1; e_token = 1; clock = 1; highest = 1; in_grace = 1; printf("entry|%d\n", 0)
#ifdef RECORD_STAYS
        ; r_state = invalidated; r_over = 1; r_ttl = 1; r_number = 1
#endif
      }
#ifdef CALM
    :: d_step { e_there = 1; e_token = 1; e_gen = 2; clock = 2; highest = 1; in_grace = 1; printf("entry|%d\n", 1) }
#endif
    fi;
    for (i : 1 .. READERS) { run Reader(i) }
    for (i : 1 .. RUNS) { run Run(i) }
    run Writer()
#if FAULTS
    ; run Redis()
#endif
#ifdef FAILOVER
    ; run Failover()
#endif
#ifdef CALM
    ; run Finale()
#elif PROPERTY != 3 && PROPERTY != 5
    ; run Probe()
#endif
  }
}
