package limiter

import (
	"fmt"
	"slices"
	"time"
)

// MaxSteps is the largest number of steps of a Cooldown limit.
const MaxSteps = 30

// The log of a Cooldown limit has an entry for each permit since the steps started. The
// oldest ones are merged into the first entry, so that there are at most
// maxCooldownEntries. All expire together, one Rate.Window after the last.
const maxCooldownEntries = 32

// checkCooldown checks the steps, and the rate by them.
func (l *Limit) checkCooldown() error {
	switch {
	case l.Rate.Count != 1:
		return fmt.Errorf("%w: %s has a count of %d; the count of a cooldown is 1", ErrInvalidLimit, l.Name, l.Rate.Count)
	case len(l.Steps) == 0 || len(l.Steps) > MaxSteps:
		return fmt.Errorf("%w: %s has %d steps; write 1 to %d", ErrInvalidLimit, l.Name, len(l.Steps), MaxSteps)
	case !slices.IsSorted(l.Steps):
		return fmt.Errorf("%w: a step of %s is shorter than the one before", ErrInvalidLimit, l.Name)
	case l.Steps[len(l.Steps)-1] > l.Rate.Window:
		return fmt.Errorf("%w: the window of %s is shorter than its last step", ErrInvalidLimit, l.Name)
	}
	for _, s := range l.Steps {
		if s < time.Millisecond || s%time.Millisecond != 0 {
			return fmt.Errorf("%w: a step of %v; steps are whole milliseconds, at least 1ms", ErrInvalidLimit, s)
		}
	}
	return nil
}

// advanceCooldown clears the log if its last permit is at least a window old.
func (s *keyState) advanceCooldown(now int64, l *Limit) {
	for i := len(s.entries) - 1; i >= 0 && s.entries[i].at > now; i-- {
		s.entries[i].at = now
	}
	if len(s.entries) > 0 && s.newestTime() <= now-windowMillis(l) {
		s.entries, s.taken = s.entries[:0], 0
	}
}

// remainingCooldown returns 1, and 0 during a pause.
func (s *keyState) remainingCooldown(now int64, l *Limit) int64 {
	if s.waitCooldown(now, l) > 0 {
		return 0
	}
	return 1
}

// waitCooldown returns the rest of the pause; 0 means none.
func (s *keyState) waitCooldown(now int64, l *Limit) int64 {
	if s.taken <= 0 {
		return 0
	}
	step := l.Steps[min(s.taken, int64(len(l.Steps)))-1]
	return max(0, s.newestTime()+step.Milliseconds()-now)
}

// takeCooldown records a permit with this id at now.
func (s *keyState) takeCooldown(now int64, id [16]byte) {
	if len(s.entries) >= maxCooldownEntries {
		s.entries[1].n += s.entries[0].n
		s.entries[1].kind = merged
		s.entries = slices.Delete(s.entries, 0, 1)
	}
	s.add(now, id, 1)
}

// grantCooldown removes the last n permits.
func (s *keyState) grantCooldown(n int64) {
	s.permitLog.grant(n)
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.n == 0 })
}

// extendPause makes the pause last at least wait from now on. It records as few permits
// as that needs.
func (s *keyState) extendPause(now, wait int64, l *Limit) {
	if wait <= s.waitCooldown(now, l) {
		return
	}
	level := min(len(l.Steps)-1, max(0, slices.IndexFunc(l.Steps, func(s time.Duration) bool { return s.Milliseconds() >= wait })))
	s.entries = append(s.entries[:0], entry{at: min(now, now+wait-l.Steps[level].Milliseconds()), n: uint32(level + 1), kind: merged})
	s.taken = int64(level) + 1
}
