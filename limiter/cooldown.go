package limiter

import (
	"fmt"
	"slices"
	"time"
)

// A window of Cooldown is the permits since it began again, the first maxCooldownEntries
// of them in one entry. All come back together, one Rate.Window after the last.
const maxCooldownEntries = 32

// checkSteps checks what a Cooldown demands of a limit.
func (l *Limit) checkSteps() error {
	switch {
	case l.Algorithm != Cooldown && len(l.Steps) > 0:
		return fmt.Errorf("%w: %s has steps; only cooldown has them", ErrInvalidLimit, l.Name)
	case l.Algorithm != Cooldown:
		return nil
	case l.Rate.Count != 1:
		return fmt.Errorf("%w: %s lets %d through at a time; a cooldown lets 1", ErrInvalidLimit, l.Name, l.Rate.Count)
	case len(l.Steps) == 0 || len(l.Steps) > MaxSteps:
		return fmt.Errorf("%w: %s has %d steps; write 1 to %d", ErrInvalidLimit, l.Name, len(l.Steps), MaxSteps)
	case !slices.IsSorted(l.Steps):
		return fmt.Errorf("%w: a step of %s is shorter than the one before", ErrInvalidLimit, l.Name)
	case l.Steps[len(l.Steps)-1] > l.Rate.Window:
		return fmt.Errorf("%w: %s begins anew before its last step is over", ErrInvalidLimit, l.Name)
	}
	for _, s := range l.Steps {
		if s < time.Millisecond || s%time.Millisecond != 0 {
			return fmt.Errorf("%w: a step of %v; steps are whole milliseconds, 1ms or more", ErrInvalidLimit, s)
		}
	}
	return nil
}

// advanceCooldown forgets everything once the last permit is a length old.
func (w *window) advanceCooldown(now, length int64) {
	for i := len(w.entries) - 1; i >= 0 && w.entries[i].at > now; i-- {
		w.entries[i].at = now
	}
	if len(w.entries) > 0 && w.newestTime() <= now-length {
		w.entries, w.taken = w.entries[:0], 0
	}
}

// pauseLeft is how long after now the next permit is to be had; 0 is at once.
func (w *window) pauseLeft(now int64, l *Limit) int64 {
	if w.taken <= 0 {
		return 0
	}
	step := l.Steps[min(w.taken, int64(len(l.Steps)))-1]
	return max(0, w.newestTime()+step.Milliseconds()-now)
}

// takeCooldown takes the permit at now, under id.
func (w *window) takeCooldown(now int64, id [16]byte) {
	if len(w.entries) >= maxCooldownEntries {
		w.entries[1].n += w.entries[0].n
		w.entries[1].kind = merged
		w.entries = slices.Delete(w.entries, 0, 1)
	}
	w.take(now, id, 1)
}

// grantCooldown forgets the last n permits.
func (w *window) grantCooldown(n int64) {
	w.grant(n)
	w.entries = slices.DeleteFunc(w.entries, func(e entry) bool { return e.n == 0 })
}

// extendPause makes the pause last for so long from now on, if it is shorter: as if
// as few permits had been taken as that needs.
func (w *window) extendPause(now, wait int64, l *Limit) {
	if wait <= w.pauseLeft(now, l) {
		return
	}
	level := min(len(l.Steps)-1, max(0, slices.IndexFunc(l.Steps, func(s time.Duration) bool { return s.Milliseconds() >= wait })))
	w.entries = append(w.entries[:0], entry{at: min(now, now+wait-l.Steps[level].Milliseconds()), n: uint32(level + 1), kind: merged})
	w.taken = int64(level) + 1
}
