/* Who takes the steps. Between two of them anyone may pause for any time, or die: in Spin nobody has to go on. */

#define CLAIM_OF_FOLLOW_UP(run) (10 + (run))
#define PROBE 7        /* the nonce, and the claim's id, of the probe */

/* What the actors have begun, so that equal ones begin in one order only. */
byte readers_begun, runs_begun, invalidations_done;

inline publish(n) {
  assert(n > 0 && n <= 18); published = published | (1 << n); printf("publish|%d\n", n)
}

/* api_client: reads, and asks for a refresh off its caller's path. An early draw may be positive: a fresh entry is no bar.
 * In a calm world it asks only for what is stale or missing, and one that has nothing asks until there is something. */
proctype Reader(byte id) {
  byte seen, n, next;
  bit again;
reads:
  atomic {
    if
    :: readers_begun == id - 1 -> readers_begun++
    :: readers_begun >= id
    fi;
#ifdef CALM
    (id < READERS || invalidations_done == INVALIDATIONS);
    if
    :: e_there && e_gen <= e_token -> goto served
    :: else
    fi;
#endif
    d_step {
      seen = (e_there -> e_token : 0);
      printf("read|%d|%d|%d\n", id, seen, e_gen > e_token);
      must(!in_grace || e_there, 5)
    }
  }
#ifdef READER_WAITS
  (seen == 0 || e_token > seen);
#endif
claims:
  atomic {
    look();
    d_step {
      claim(id, seen, 0);
      n = (status == 1 -> number : 0);
#ifdef CALM
      next = (status == 1 -> 1 : (seen > 0 && e_there -> 4 : 3))
#else
      next = (status == 1 -> 1 : (status == 3 && r_state == queued -> 2 : 4))
#endif
    };
    if
    :: next == 1 -> next = 0
    :: next == 2 -> next = 0; goto publishes_again
    :: next == 3 -> next = 0; goto waits
    :: next == 4 -> next = 0; goto served
    fi
  };
#ifdef REPEATS
  if
  :: !again -> again = 1; printf("lost|%d\n", id); goto claims
  :: skip
  fi;
#endif
  if
  :: atomic { publish(n); goto served }
#ifndef CALM
  :: atomic { look(); d_step { unclaim(id) }; goto served } /* the broker could not be reached */
#endif
  fi;
publishes_again:
  atomic {
    look();
    d_step { republish(); n = number };
    if
    :: n > 0 -> publish(n)
    :: n == 0
    fi;
    goto served
  };
waits:
  atomic { (e_there || r_state == idle || r_state == invalidated) -> goto reads };
served:
  atomic { seen = 0; n = 0; again = 0 }
}

#define TAKE(n) :: runs_begun == nonce - 1 && (published & (1 << n)) -> claim_number = n

/* refresher: one run, by any worker. The same message may be taken by many: it is delivered again, or comes late. */
proctype Run(byte nonce) {
  byte claim_number, with_ticket, token, next;
  bit again;
endtakes:
  atomic {
    if
    TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5) TAKE(6) TAKE(7) TAKE(8) TAKE(9) TAKE(10) TAKE(11) TAKE(12)
    TAKE(13) TAKE(14) TAKE(15) TAKE(16) TAKE(17) TAKE(18)
    :: runs_begun == nonce - 1 && ticket -> claim_number = ticket_number; with_ticket = ticket
    fi;
#ifdef CONSUMED
    if
    :: with_ticket -> ticket = 0
    :: else -> published = published & ~(1 << claim_number)
    fi;
#endif
    runs_begun++;
    printf("take|%d|%d|%d\n", nonce, claim_number, with_ticket)
  };
acquires:
  atomic {
    look();
    d_step { acquire(nonce, claim_number, with_ticket); token = (status == 1 -> number : 0) };
    if
    :: token == 0 -> goto over
    :: token > 0
    fi
  };
#ifdef REPEATS
  if
  :: !again -> again = 1; printf("lost|%d\n", 10 + nonce); goto acquires
  :: skip
  fi;
#endif
  d_step {
#ifndef ENDS
    claim_number = 0;
#endif
    with_ticket = 0; again = 0;
    reading = reading | BIT(nonce);
    overtaken = overtaken & ~BIT(nonce); overtaken_hard = overtaken_hard & ~BIT(nonce);
#ifdef FAILOVER
    s_overtaken = s_overtaken & ~BIT(nonce); s_overtaken_hard = s_overtaken_hard & ~BIT(nonce);
#endif
    loads = (LOADS_COUNT -> loads + 1 : 0);
    printf("load|%d|%d\n", nonce, (informed & BIT(nonce)) != 0)
  }
#ifdef FOLLOWER
  if
  :: behind && !(informed & BIT(nonce)) -> overtaken = overtaken | BIT(nonce); printf("lag|%d\n", nonce)
  :: skip
  fi;
#endif
ends:
  if
  :: goto commits
#ifdef ENDS
  :: atomic {
      look();
      d_step { retry(token, nonce); next = (status == 1 && !ticket) };
      if
      :: next -> ticket = nonce; ticket_number = claim_number; goto over
      :: !next -> goto over
      fi
    }
  :: atomic { look(); d_step { fail(token, nonce) }; goto over }
  :: atomic {
      look();
      d_step { hand_back(token, nonce); claim_number = number };
      if
      :: claim_number > 0 -> publish(claim_number); goto over
      :: claim_number == 0 -> goto over
      fi
    }
  :: atomic { look(); d_step { renew(token, nonce) }; goto ends }
#endif
  fi;
commits:
  atomic {
    look();
    d_step { commit(token, nonce); next = status };
    if
#ifdef REPEATS
    :: !again -> next = 0; again = 1; printf("lost|%d\n", 10 + nonce); goto commits
#endif
    :: next == 2 || next == 4
    :: next == 1 || next == 3 || next == 5 -> goto over
    fi
  };
  atomic {
    look();
    d_step {
      shown = (next == 2 -> token : SEEN_OF_NOTHING_STORED);
      claim(CLAIM_OF_FOLLOW_UP(nonce), shown, 0);
      claim_number = (status == 1 -> number : 0)
    };
    if
    :: claim_number > 0 -> publish(claim_number)
    :: claim_number == 0
    fi
  };
over:
  atomic {
    claim_number = 0; with_ticket = 0; token = 0; again = 0; next = 0;
    reading = reading & ~BIT(nonce); overtaken = overtaken & ~BIT(nonce);
    overtaken_hard = overtaken_hard & ~BIT(nonce)
  }
}
