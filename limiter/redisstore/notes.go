package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// A note is a string in Redis that names the permits that were taken of a limit under one subject:
// see lua/general/note.lua. A script that takes permits in a single Redis notes them, and another one
// returns them. In a cluster the note and the permits are in different slots: the permits are taken and
// then noted, and the note is removed before they are returned by their IDs. A process that dies in
// between leaves permits that are taken until they expire.
const (
	noteSign  = 'n' // in the name of the key, in place of the sign of an algorithm
	noteBytes = 44  // of one permit in a note
	noteHead  = 14  // of that, the ID and the time
)

// isNoted reports whether the permits of c are noted under its value.
func isNoted(c *limiter.Claim) bool {
	return c.Limit != nil && c.Limit.Noted && c.Value != limiter.Key{}
}

// appendNote appends the name of the note of limits that have the name of l up to the last colon.
func (n names) appendNote(out []byte, l *limiter.Limit, subject limiter.Key) []byte {
	box, _ := splitName(l.Name)
	out = append(append(out, n.prefix...), ":{"...)
	out = append(append(out, subject.String()...), "}:"...)
	return append(append(out, box...), '{', noteSign, '}')
}

// noteGroup returns the claims at the beginning of claims, without those that are not noted, that are
// noted in one key, and the rest.
func noteGroup(claims []limiter.Claim) (group, rest []limiter.Claim) {
	for i := range claims {
		c := &claims[i]
		switch {
		case !isNoted(c):
		case len(group) == 0 || isSameNote(&group[0], c):
			group = append(group, *c)
		default:
			rest = append(rest, *c)
		}
	}
	return group, rest
}

// isSameNote reports whether a and b are noted in one key.
func isSameNote(a, b *limiter.Claim) bool {
	own, _ := splitName(a.Limit.Name)
	other, _ := splitName(b.Limit.Name)
	return own == other && a.Value == b.Value
}

// appendNoted appends what a note has of each claim behind the time, and returns how long the note
// has to live.
func appendNoted(out []byte, claims []limiter.Claim) ([]byte, time.Duration) {
	var ttl time.Duration
	for i := range claims {
		c := &claims[i]
		out = binary.LittleEndian.AppendUint32(out, uint32(c.Cost))
		out = appendTime(append(out, c.Key[:]...), c.Limit.Rate.Window)
		out = binary.LittleEndian.AppendUint32(out, uint32(c.Limit.Rate.Count))
		ttl = max(ttl, c.Limit.Horizon())
	}
	return out, ttl
}

// note appends what the current request notes if it is granted.
func (p *payload) note(n names, id [16]byte, claims []limiter.Claim) {
	for group, rest := noteGroup(claims); len(group) > 0; group, rest = noteGroup(rest) {
		p.name = n.appendNote(p.name[:0], group[0].Limit, group[0].Value)
		p.keys = wire.AppendBulk(p.keys, p.name)
		p.keyCount++
		noted, ttl := appendNoted(nil, group)
		p.notes = binary.LittleEndian.AppendUint16(p.notes, uint16(p.current.result))
		p.notes = appendTime(binary.LittleEndian.AppendUint16(p.notes, uint16(p.keyCount)), ttl)
		p.notes = append(append(append(p.notes, id[:idBytes]...), byte(len(group))), noted...)
	}
}

// notesApart reports whether what is taken for claims is noted by a call of its own.
func (s *Store) notesApart(claims []limiter.Claim) bool {
	for i := range claims {
		if isNoted(&claims[i]) {
			return s.isCluster || slices.ContainsFunc(claims, func(c limiter.Claim) bool { return s.partSlot(&c) != s.partSlot(&claims[0]) })
		}
	}
	return false
}

// takeAndNote takes claims and then notes what was taken, in the time of one call.
func (s *Store) takeAndNote(ctx context.Context, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.takeParts(ctx, claims, id, d); err != nil || !d.Allowed {
		return err
	}
	waitFor(ctx, s.startNotes(claims, d.Permit)) // if that fails, the permits are taken until they expire
	return nil
}

// startNotes queues the calls that note what p took.
func (s *Store) startNotes(claims []limiter.Claim, p limiter.Permit) (calls []*call) {
	for group, rest := noteGroup(claims); len(group) > 0; group, rest = noteGroup(rest) {
		noted, ttl := appendNoted(nil, group)
		name := string(s.names.appendNote(nil, group[0].Limit, group[0].Value))
		args := []any{"", ttl.Milliseconds(), string(p.ID[:idBytes]), p.At.UnixMilli(), noted}
		command := changeCommand{script: s.scripts.get(scriptName{name: "note"}), keys: []string{name}, args: args}
		if c, err := s.queueChange(subjectClaim(group[0].Limit, group[0].Value), command); err == nil {
			calls = append(calls, c)
		}
	}
	return calls
}

// waitFor waits until calls have been answered, or ctx is done.
func waitFor(ctx context.Context, calls []*call) {
	for _, c := range calls {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
}

// subjectClaim returns claims in the slot of a subject.
func subjectClaim(l *limiter.Limit, subject limiter.Key) []limiter.Claim {
	return []limiter.Claim{{Limit: l, Key: subject, Cost: 1}}
}

// Return implements limiter.AdminStore.
func (s *Store) Return(_ context.Context, limits []*limiter.Limit, subject limiter.Key) (decisions int, err error) {
	return s.StartReturn(limits, subject)()
}

// StartReturn is to Return as StartRefund is to Refund. A Take that begins before wait returns may be decided before
// permits are returned in a cluster, where they are in other slots than their note, and of more than 8 before the others.
func (s *Store) StartReturn(limits []*limiter.Limit, subject limiter.Key) (wait func() (int, error)) {
	for _, l := range limits {
		if err := l.CheckNoted(); err != nil {
			return func() (int, error) { return 0, err }
		}
	}
	if len(limits) == 0 {
		return func() (int, error) { return 0, nil }
	}
	return s.queueReturn(limits, subject)
}

// queueReturn queues the script call that returns what is noted under subject, or of that what the decisions with
// one of ids took.
func (s *Store) queueReturn(limits []*limiter.Limit, subject limiter.Key, ids ...any) (wait func() (int, error)) {
	if s.isCluster {
		return s.startReturnInSlots(limits, subject, ids...)
	}
	command := s.returnCommand(limits, subject)
	command.args = append(command.args, ids...)
	c, err := s.queueChange(subjectClaim(limits[0], subject), command)
	if err != nil {
		return func() (int, error) { return 0, returnError(err) }
	}
	s.refusals.invalidateLimits(limits)
	return func() (decisions int, err error) {
		for {
			<-c.done
			if c.err != nil {
				return decisions, returnError(c.err)
			}
			decisions += int(c.reply % moreNoted)
			if c.reply < moreNoted {
				return decisions, nil
			}
			if c, err = s.queueChange(subjectClaim(limits[0], subject), command); err != nil {
				return decisions, returnError(err)
			}
		}
	}
}

// moreNoted in a reply says that another call has to return the rest, see lua/command/return.lua.
const moreNoted = 1 << 20

// byNote reports whether c is refunded by its note: buckets of Conversion limits do not tell of which decisions permits are.
func byNote(c limiter.Claim) bool { return c.Limit != nil && c.Limit.Algorithm.HasConversion() }

// splitConversions returns the claims that are refunded by their note, and the others.
func splitConversions(claims []limiter.Claim) (conversions, others []limiter.Claim) {
	if !slices.ContainsFunc(claims, byNote) {
		return nil, claims
	}
	conversions = slices.DeleteFunc(slices.Clone(claims), func(c limiter.Claim) bool { return !byNote(c) })
	return conversions, slices.DeleteFunc(slices.Clone(claims), byNote)
}

// startRefundByNote refunds what p took for claims of Conversion limits, if it is still noted. Without a
// subject such permits stay taken.
func (s *Store) startRefundByNote(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	var waits []func() (int, error)
	for group, rest := noteGroup(claims); len(group) > 0 && !p.IsZero(); group, rest = noteGroup(rest) {
		var limits []*limiter.Limit
		for i := range group {
			limits = append(limits, group[i].Limit)
		}
		waits = append(waits, s.queueReturn(limits, group[0].Value, string(p.ID[:idBytes])))
	}
	return func() (failed error) {
		for _, wait := range waits {
			_, err := wait()
			failed = errors.Join(failed, err)
		}
		return failed
	}
}

func returnError(err error) error {
	return fmt.Errorf("return permits of a subject: %w: %w", limiter.ErrUnavailable, err)
}

// returnCommand returns the script call that returns what is noted under subject.
func (s *Store) returnCommand(limits []*limiter.Limit, subject limiter.Key) changeCommand {
	var packed []byte
	algorithms := uint16(0)
	args := []any{nil, s.names.prefix + ":{"}
	for _, l := range limits {
		packed = appendLimit(packed, l)
		algorithms |= 1 << l.Algorithm
		_, name, _ := strings.Cut(string(s.names.append(nil, &limiter.Claim{Limit: l}, 0)), "}") // of the key
		args = append(args, "}"+strings.TrimSuffix(name, windowKey(0)))
	}
	args[0] = packed
	name := string(s.names.appendNote(nil, limits[0], subject))
	return changeCommand{script: s.scripts.get(scriptName{name: "return", algorithms: algorithms}), keys: []string{name}, args: args}
}

// startReturnInSlots is queueReturn in a cluster.
func (s *Store) startReturnInSlots(limits []*limiter.Limit, subject limiter.Key, ids ...any) (wait func() (int, error)) {
	decisions, failed := 0, error(nil)
	done := make(chan struct{})
	s.background.Go(func() {
		defer close(done)
		decisions, failed = s.returnInSlots(limits, subject, ids)
	})
	return func() (int, error) {
		<-done
		return decisions, failed
	}
}

// returnInSlots takes parts out of a note, then returns each and confirms the subject. If the process dies in
// between, or a master and its replicas do not agree, permits stay taken, and the subject counts as confirmed in no window.
func (s *Store) returnInSlots(limits []*limiter.Limit, subject limiter.Key, ids []any) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	confirms := 0
	if limits[0].Algorithm.HasConversion() {
		confirms = 1
	}
	parts, err := s.unnote(ctx, string(s.names.appendNote(nil, limits[0], subject)), append([]any{"", confirms}, ids...))
	if err != nil {
		s.reloadCluster()
		return 0, returnError(err)
	}
	decisions, failed := map[limiter.Permit]bool{}, error(nil)
	for _, part := range parts {
		text, _ := part.(string)
		if len(text) != noteBytes+1+6 {
			return len(decisions), returnError(wire.ErrReply)
		}
		claim, permit, found := readNoted([]byte(text), limits)
		if !found {
			continue
		}
		n, err := s.startRefund(claim, permit)()
		if n > 0 {
			decisions[permit] = true
		}
		if n > 0 && text[noteBytes] > 0 {
			before := readTime6([]byte(text[noteBytes+1:]))
			_, confirmErr := s.startChange("confirm", claim, func(part []limiter.Claim) changeCommand {
				return s.changeOf("confirm", part, before)
			})()
			err = errors.Join(err, confirmErr)
		}
		failed = errors.Join(failed, err)
	}
	return len(decisions), failed
}

// readNoted reads a part of a note. found is false if it was taken in a window that none of limits has.
func readNoted(part []byte, limits []*limiter.Limit) (claims []limiter.Claim, p limiter.Permit, found bool) {
	copy(p.ID[:], part[:idBytes])
	p.At = time.UnixMilli(int64(readTime6(part[idBytes:])))
	one := part[noteHead:]
	window, count := time.Duration(readTime6(one[20:]))*time.Millisecond, int64(binary.LittleEndian.Uint32(one[26:]))
	i := slices.IndexFunc(limits, func(l *limiter.Limit) bool { return l.Rate.Window == window })
	if i < 0 {
		return nil, p, false
	}
	l := limiter.NotedLimit(limits, limits[i], count)
	return []limiter.Claim{{Limit: l, Key: limiter.Key(one[4:20]), Cost: int64(binary.LittleEndian.Uint32(one))}}, p, true
}

// readTime6 reads what appendTime has written.
func readTime6(in []byte) uint64 {
	var all [8]byte
	copy(all[:6], in)
	return binary.LittleEndian.Uint64(all[:])
}
