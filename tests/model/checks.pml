/* What must be true at every moment (Probe), and when all is quiet (Finale). */

hidden byte k_there, k_e_marks, k_over, k_back, k_ttl, k_marks, k_e_overtaken, k_in_grace;
hidden byte k_e_token, k_e_nonce, k_e_gen, k_number, k_claim, k_claim_number, k_token, k_nonce, k_ticket, k_gen, k_hard,
  k_ended_by, k_clock, k_overtaken, k_overtaken_hard, k_informed, k_stored, k_newest_nonce, k_newest_token, k_highest;
hidden byte k_state;

inline keep() {
  k_there = e_there; k_e_marks = e_marks; k_over = r_over; k_back = r_back; k_ttl = r_ttl; k_marks = r_marks;
  k_e_overtaken = e_overtaken; k_in_grace = in_grace; k_e_token = e_token; k_e_nonce = e_nonce; k_e_gen = e_gen;
  k_number = r_number; k_claim = r_claim; k_claim_number = r_claim_number; k_token = r_token; k_nonce = r_nonce;
  k_ticket = r_ticket; k_gen = r_gen; k_hard = r_hard; k_ended_by = r_ended_by; k_clock = clock;
  k_overtaken = overtaken; k_overtaken_hard = overtaken_hard; k_informed = informed; k_stored = stored;
  k_newest_nonce = newest_nonce; k_newest_token = newest_token; k_highest = highest; k_state = r_state
}

inline restore() {
  e_there = k_there; e_marks = k_e_marks; r_over = k_over; r_back = k_back; r_ttl = k_ttl; r_marks = k_marks;
  e_overtaken = k_e_overtaken; in_grace = k_in_grace; e_token = k_e_token; e_nonce = k_e_nonce; e_gen = k_e_gen;
  r_number = k_number; r_claim = k_claim; r_claim_number = k_claim_number; r_token = k_token; r_nonce = k_nonce;
  r_ticket = k_ticket; r_gen = k_gen; r_hard = k_hard; r_ended_by = k_ended_by; clock = k_clock;
  overtaken = k_overtaken; overtaken_hard = k_overtaken_hard; informed = k_informed; stored = k_stored;
  newest_nonce = k_newest_nonce; newest_token = k_newest_token; highest = k_highest; r_state = k_state
}

/* From every state, whoever has died: once the deadline has passed, one claim, acquire and commit make the key fresh and
 * leave one Redis key. No deadline passes that is farther than it was set for. And a record that is queued needs no deadline: its message sent once more is enough. One d_step
 * that ends where it began, so it adds no state. */
proctype Probe() {
end:
  do
  :: d_step {
      must(r_state == idle || r_ttl, 6);
      keep();
      if
      :: r_state == queued -> printf("probe|again\n"); acquire(PROBE, r_claim_number, 0); must(status == 1, 4); restore()
      :: else
      fi;
      if
      :: r_back -> printf("probe|behind\n")
      :: else -> r_over = (r_state != idle); printf("probe|over\n")
      fi;
      shown = (e_there -> e_token : 0);
      claim(PROBE, shown, 0);
      must(status == 1, 4);
      acquire(PROBE, number, 0);
      must(status == 1, 4);
      if
      :: status == 1 ->
        commit(newest_token, PROBE);
        must(status == 1 && e_there && e_gen <= e_token && e_token == newest_token, 4);
        must(r_state == idle, 6)
      :: else
      fi;
      restore(); shown = 0
    }
  od
}

#ifdef CALM
/* No step is left: nobody crashed, no message was lost, no time had to pass. */
proctype Finale() {
  timeout;
  d_step {
    printf("quiet|\n");
    must(e_there && e_gen <= e_token, 4);
    must(r_state == idle, 6);
    must(loads <= 1 + INVALIDATIONS, 7)
  }
}
#endif
