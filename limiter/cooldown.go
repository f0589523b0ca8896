package limiter

import (
	"fmt"
	"slices"
	"time"
)

// The window of a Cooldown limit has an entry for each permit since the steps started.
// The oldest ones are merged into the first entry, so that there are at most
// maxCooldownEntries. All expire together, one Rate.Window after the last.
const maxCooldownEntries = 32

// checkSteps checks the fields that only Cooldown uses.
func (l *Limit) checkSteps() error {
	switch {
	case !l.Algorithm.HasSteps() && len(l.Steps) > 0:
		return fmt.Errorf("%w: %s has steps; only cooldown uses them", ErrInvalidLimit, l.Name)
	case !l.Algorithm.HasSteps():
		return nil
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

// advanceCooldown clears w if its last permit is at least length old.
func (w *window) advanceCooldown(now, length int64) {
	for i := len(w.entries) - 1; i >= 0 && w.entries[i].at > now; i-- {
		w.entries[i].at = now
	}
	if len(w.entries) > 0 && w.newestTime() <= now-length {
		w.entries, w.taken = w.entries[:0], 0
	}
}

// pauseLeft returns the time from now until the next permit is available; 0 means now.
func (w *window) pauseLeft(now int64, l *Limit) int64 {
	if w.taken <= 0 {
		return 0
	}
	step := l.Steps[min(w.taken, int64(len(l.Steps)))-1]
	return max(0, w.newestTime()+step.Milliseconds()-now)
}

// takeCooldown records a permit with this id at now.
func (w *window) takeCooldown(now int64, id [16]byte) {
	if len(w.entries) >= maxCooldownEntries {
		w.entries[1].n += w.entries[0].n
		w.entries[1].kind = merged
		w.entries = slices.Delete(w.entries, 0, 1)
	}
	w.take(now, id, 1)
}

// grantCooldown removes the last n permits.
func (w *window) grantCooldown(n int64) {
	w.grant(n)
	w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return e.n == 0 })
}

// extendPause makes the pause last at least wait from now on. It records as few permits
// as that needs.
func (w *window) extendPause(now, wait int64, l *Limit) {
	if wait <= w.pauseLeft(now, l) {
		return
	}
	level := min(len(l.Steps)-1, max(0, slices.IndexFunc(l.Steps, func(s time.Duration) bool { return s.Milliseconds() >= wait })))
	w.entries = append(w.entries[:0], entry{at: min(now, now+wait-l.Steps[level].Milliseconds()), n: uint32(level + 1), kind: merged})
	w.taken = int64(level) + 1
}
