/* The steps of the lease record: one inline a script of api_client/lua, and under its name. Each is one d_step of its
 * caller. What a flag (#ifdef) adds or leaves out is a broken variant, which Spin has to refute.
 */

inline claim(id, seen, force) {
  if
#ifndef CLAIM_REPEAT_UNKNOWN
  :: r_state == queued && r_claim == id -> status = 1; number = r_claim_number
#endif
  :: else ->
    draw();
    if
    :: r_state != idle -> r_number = number
    :: else
    fi;
    if
#ifndef CLAIM_IGNORES_SEEN
    :: seen != ANY && e_there && e_token != seen -> status = 2
#endif
    :: else ->
      if
#ifdef CLAIM_WAITS_FOR_EVER
      :: r_state == idle || r_state == invalidated || (force && r_state == cooling) ->
#else
      :: r_state == idle || OVER || r_state == invalidated || (force && r_state == cooling) ->
#endif
        r_state = queued; lasts(); r_number = number; r_claim = id; r_claim_number = number; r_ticket = 0;
        r_ended_by = 0; r_ttl = 1; status = 1
#ifdef CLAIM_FORGETS_INVALIDATION
        ; r_gen = 0; r_hard = 0
#endif
      :: else -> status = 3
      fi
    fi
  fi;
  printf("claim|%d|%d|%d|%d|%e\n", id, seen, status, number, r_state)
}

inline republish() {
  if
  :: r_state == queued -> status = 1; number = r_claim_number
  :: else -> status = 0; number = 0
  fi;
  printf("republish|%d|%d\n", status, number)
}

inline unclaim(id) {
  if
  :: r_state == queued && r_claim == id -> rest(); status = 1
  :: else -> status = 0
  fi;
  printf("unclaim|%d|%d|%e\n", id, status, r_state)
}

inline acquire(nonce, claim_number, with_ticket) {
  if
#ifndef ACQUIRE_REPEAT_UNKNOWN
  :: r_state == running && r_nonce == nonce -> status = 1; number = r_token
#endif
  :: else ->
    if
#ifdef ACQUIRE_WAITS_FOR_EVER
    :: !(r_state == idle || r_state == queued || r_state == invalidated ||
#else
    :: !(r_state == idle || OVER || r_state == queued || r_state == invalidated ||
#endif
#ifdef ACQUIRE_IGNORES_RUNNING
         r_state == running ||
#endif
         (r_state == retrying && with_ticket != 0 && r_ticket == with_ticket)) -> status = 3; number = 0
    :: else ->
      wanted = (claim_number > r_gen -> claim_number : r_gen);
      wanted = (r_state == queued && r_claim_number > wanted -> r_claim_number : wanted);
      wanted = (e_there && e_gen > wanted -> e_gen : wanted);
      if
#ifndef ACQUIRE_IGNORES_FRESH
      :: e_there && e_token > wanted -> status = 2; number = e_token
#endif
      :: else ->
        draw();
        r_state = running; lasts(); r_number = number; r_token = number; r_nonce = nonce;
        r_claim_number = (claim_number > r_claim_number -> claim_number : r_claim_number);
        r_claim_number = (r_claim_number > 1 -> r_claim_number : 1); /* 0 says "none" where a run is handed back */
        r_claim = 0; r_ticket = 0; r_ended_by = 0; r_ttl = 1; status = 1;
        newest_nonce = nonce; newest_token = number;
        informed = informed & ~BIT(nonce);
#ifdef LOAD_FORGETS_ENTRYS_MARKS
        informed = (r_marks -> informed | BIT(nonce) : informed)
#else
        informed = (r_marks || (e_there && e_marks) -> informed | BIT(nonce) : informed)
#endif
      fi
    fi
  fi;
  printf("acquire|%d|%d|%d|%d|%d|%e\n", nonce, claim_number, with_ticket, status, number, r_state)
}

inline renew(token, nonce) {
  status = (r_state == running && r_token == token && r_nonce == nonce && !r_over);
  r_back = (status -> 0 : r_back);
  printf("renew|%d|%d|%d\n", nonce, token, status)
}

/* What commit writes, and what must be true of it. */
inline store(token, nonce) {
  must(nonce == newest_nonce && token == newest_token && !(stored & BIT(nonce)), 1);
  must(token > highest, 2);
  must(!(overtaken_hard & BIT(nonce)), 3);
  stored = stored | BIT(nonce); highest = token;
  e_there = 1; e_token = token; e_nonce = nonce; e_gen = 0; in_grace = 1;
  e_marks = ((informed & BIT(nonce)) != 0);
  e_overtaken = ((overtaken & BIT(nonce)) != 0)
}

inline commit(token, nonce) {
  mine = (r_state != idle && r_token == token && r_nonce == nonce);
#if defined(FENCE)
  mine = (token >= r_token && token >= r_gen && token >= r_claim_number);
#elif defined(FENCE_IF_RECORD)
  mine = (r_state != idle && token >= r_token && token >= r_gen && token >= r_claim_number);
#elif defined(COMMIT_WITHOUT_NONCE) || defined(INCR)
  mine = (r_state != idle && r_token == token);
#elif defined(COMMIT_IF_RECORD)
  mine = (r_state != idle);
#endif
#ifdef COMMIT_IF_MISSING
  mine = mine || r_state == idle;
#endif
  if
  :: !mine && e_there && e_token == token && e_nonce == nonce -> status = (e_gen > e_token -> 2 : 1)
  :: !mine && !(e_there && e_token == token && e_nonce == nonce) -> status = (r_state == idle -> 5 : 3)
#ifndef COMMIT_IGNORES_ENTRY
  :: mine && e_there && e_token >= token -> status = 3
#endif
#ifndef COMMIT_IGNORES_HARD
  :: mine && !(e_there && e_token >= token) && r_hard > token ->
    status = 4;
    if
    :: r_state == queued -> r_token = 0; r_nonce = 0
    :: else -> rest_invalidated()
    fi
#endif
  :: else ->
    store(token, nonce);
#ifdef COMMIT_IGNORES_INVALIDATION
    status = 1;
#else
    status = (r_gen > token -> 2 : 1);
    e_gen = (r_gen > token -> r_gen : 0);
#endif
    must(!e_overtaken || e_gen > e_token, 3);
    if
    :: r_state == queued ->
#ifndef LATE_COMMIT_KEEPS_TOKEN
      r_token = 0; r_nonce = 0
#else
      skip
#endif
    :: r_state != queued && status == 2 -> rest_invalidated()
#if defined(COMMIT_KEEPS_RECORD)
    :: else -> skip
#elif defined(RECORD_STAYS)
    :: else -> r_state = invalidated; r_over = 1; r_back = 0; r_nonce = 0
#else
    :: else -> drop_record()
#endif
    fi
  fi;
  printf("commit|%d|%d|%d|%e\n", nonce, token, status, r_state)
}

/* The tests of retry, fail and hand_back: still running, and mine. */
#define RUNNING(token, nonce) (r_state == running && r_token == token && r_nonce == nonce)

inline retry(token, nonce) {
  if
  :: r_state == retrying && r_ticket == nonce -> status = 1 /* the run's own ticket: its nonce serves as one */
  :: RUNNING(token, nonce) -> r_state = retrying; lasts(); r_ticket = nonce; r_token = 0; r_nonce = 0; status = 1
  :: else -> status = 0
  fi;
  printf("retry|%d|%d|%d\n", nonce, token, status)
}

inline fail(token, nonce) {
  if
  :: r_state == cooling && r_ended_by == nonce -> status = 1
  :: RUNNING(token, nonce) ->
    r_state = cooling; lasts(); r_ended_by = nonce; r_token = 0; r_nonce = 0; status = 1
#ifdef FAIL_DROPS_ENTRY
    ; e_there = 0; e_token = 0; e_nonce = 0; e_gen = 0; e_overtaken = 0; e_marks = 0
#endif
  :: else -> status = 0
  fi;
  printf("fail|%d|%d|%d\n", nonce, token, status)
}

inline hand_back(token, nonce) {
  if
  :: r_state == queued && r_claim == 20 + nonce -> status = 1; number = r_claim_number
  :: RUNNING(token, nonce) ->
    r_state = queued; lasts(); r_claim = 20 + nonce; r_token = 0; r_nonce = 0; status = 1; number = r_claim_number
  :: else -> status = 0; number = 0
  fi;
  printf("hand_back|%d|%d|%d|%d\n", nonce, token, status, number)
}

inline invalidate(hard) {
  draw();
#if defined(INVALIDATE_VALUE_ONLY)
  drop_entry(); forget();
#elif defined(INVALIDATE_DROPS_RECORD)
  drop_entry(); drop_record(); forget();
#else
  if
  :: hard -> drop_entry(); r_hard = number
  :: !hard && e_there -> e_gen = number
  :: else
  fi;
  r_gen = number; r_number = number;
#ifndef NO_BOOKMARK
  r_marks = 1;
#endif
  if
  :: r_state != queued && r_state != running -> rest_invalidated()
  :: else -> r_ttl = 1
  fi;
#ifdef SOFT_DROPS_ENTRY
  e_there = 0; e_token = 0; e_nonce = 0; e_gen = 0; e_overtaken = 0; e_marks = 0;
#endif
#endif
  overtaken = overtaken | reading;
  overtaken_hard = (hard -> overtaken_hard | reading : overtaken_hard);
  e_overtaken = e_there; e_marks = 0; informed = 0; behind = 1;
#ifdef FAILOVER_LOSES_INVALIDATION
  s_overtaken = s_overtaken | reading; s_e_overtaken = s_there;
#endif
  must(!e_overtaken || e_gen > e_token, 3);
  printf("invalidate|%d|%d|%e\n", hard, number, r_state)
}
