/* A replica that is behind: it has what was there when it was copied, and becomes the master. */

#ifdef FAILOVER
bit s_taken, s_there, s_e_marks, s_over, s_back, s_ttl, s_marks, s_e_overtaken, s_in_grace;
byte s_e_token, s_e_nonce, s_e_gen, s_number, s_claim, s_claim_number, s_token, s_nonce, s_ticket, s_gen, s_hard,
  s_ended_by, s_overtaken, s_overtaken_hard, s_informed, s_stored, s_newest_nonce, s_newest_token, s_highest;
mtype s_state;

proctype Failover() {
  d_step {
    s_there = e_there; s_e_marks = e_marks; s_over = r_over; s_back = r_back; s_ttl = r_ttl; s_marks = r_marks;
    s_e_overtaken = e_overtaken; s_in_grace = in_grace; s_e_token = e_token; s_e_nonce = e_nonce; s_e_gen = e_gen;
    s_number = r_number; s_claim = r_claim; s_claim_number = r_claim_number; s_token = r_token; s_nonce = r_nonce;
    s_ticket = r_ticket; s_gen = r_gen; s_hard = r_hard; s_ended_by = r_ended_by;
    s_overtaken = overtaken; s_overtaken_hard = overtaken_hard; s_informed = informed; s_stored = stored;
    s_newest_nonce = newest_nonce; s_newest_token = newest_token; s_highest = highest; s_state = r_state;
    printf("replica|copied\n")
  }
  d_step {
    /* What the new master does not know of has not been: the promises hold for the history that survives. */
    e_there = s_there; e_marks = s_e_marks; r_over = s_over; r_back = s_back; r_ttl = s_ttl; r_marks = s_marks;
    e_overtaken = s_e_overtaken; in_grace = s_in_grace; e_token = s_e_token; e_nonce = s_e_nonce; e_gen = s_e_gen;
    r_number = s_number; r_claim = s_claim; r_claim_number = s_claim_number; r_token = s_token; r_nonce = s_nonce;
    r_ticket = s_ticket; r_gen = s_gen; r_hard = s_hard; r_ended_by = s_ended_by;
    overtaken = s_overtaken; overtaken_hard = s_overtaken_hard; informed = s_informed; stored = s_stored;
    newest_nonce = s_newest_nonce; newest_token = s_newest_token; highest = s_highest; r_state = s_state;
    printf("replica|master\n");
    must(!e_overtaken || e_gen > e_token, 3)
  }
}
#endif
