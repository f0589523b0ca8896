package limiter

import (
	"fmt"
	"slices"
	"time"
)

// The window of a Cooldown contains the permits since the sequence started, the first
// maxPauses of them merged into one entry. All expire together, one Rate.Window after the
// last.
const maxPauses = 32

// checkSteps checks the steps of a Cooldown.
func (l *Limit) checkSteps() error {
	switch {
	case l.Algorithm != Cooldown && len(l.Steps) > 0:
		return fmt.Errorf("%w: %s has steps; only cooldown has them", ErrLimit, l.Name)
	case l.Algorithm != Cooldown:
		return nil
	case l.Rate.Count != 1:
		return fmt.Errorf("%w: %s lets %d through at a time; a cooldown lets 1", ErrLimit, l.Name, l.Rate.Count)
	case len(l.Steps) == 0 || len(l.Steps) > MaxSteps:
		return fmt.Errorf("%w: %s has %d steps; write 1 to %d", ErrLimit, l.Name, len(l.Steps), MaxSteps)
	case !slices.IsSorted(l.Steps):
		return fmt.Errorf("%w: a step of %s is shorter than the one before", ErrLimit, l.Name)
	case l.Steps[len(l.Steps)-1] > l.Rate.Window:
		return fmt.Errorf("%w: %s begins anew before its last step is over", ErrLimit, l.Name)
	}
	for _, s := range l.Steps {
		if s < time.Millisecond || s%time.Millisecond != 0 {
			return fmt.Errorf("%w: a step of %v; steps are whole milliseconds, 1ms or more", ErrLimit, s)
		}
	}
	return nil
}

// advancePauses clears the window once the last permit is length old.
func (w *window) advancePauses(now, length int64) {
	for i := len(w.entries) - 1; i >= 0 && w.entries[i].at > now; i-- {
		w.entries[i].at = now
	}
	if len(w.entries) > 0 && w.newest() <= now-length {
		w.entries, w.taken = w.entries[:0], 0
	}
}

// pause returns the time from now until the next permit; 0 means at once.
func (w *window) pause(now int64, l *Limit) int64 {
	if w.taken <= 0 {
		return 0
	}
	step := l.Steps[min(w.taken, int64(len(l.Steps)))-1]
	return max(0, w.newest()+step.Milliseconds()-now)
}

// takePause takes the permit at now, with this id.
func (w *window) takePause(now int64, id [16]byte) {
	if len(w.entries) >= maxPauses {
		w.entries[1].n += w.entries[0].n
		w.entries[1].kind = merged
		w.entries = slices.Delete(w.entries, 0, 1)
	}
	w.take(now, id, 1)
}

// grantPauses removes the last n permits.
func (w *window) grantPauses(n int64) {
	w.grant(n)
	w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return e.n == 0 })
}

// pauseFor extends the remaining interval to wait, if it is shorter, by adding as few
// permits as that requires.
func (w *window) pauseFor(now, wait int64, l *Limit) {
	if wait <= w.pause(now, l) {
		return
	}
	level := min(len(l.Steps)-1, max(0, slices.IndexFunc(l.Steps, func(s time.Duration) bool { return s.Milliseconds() >= wait })))
	w.entries = append(w.entries[:0], entry{at: min(now, now+wait-l.Steps[level].Milliseconds()), n: uint32(level + 1), kind: merged})
	w.taken = int64(level) + 1
}
