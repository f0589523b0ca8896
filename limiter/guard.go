package limiter

import (
	"context"
	"fmt"
	"time"
)

// A Guard bounds how many new keys one source, a client's address for example,
// may bring in a window: whoever invents a key for each request is stopped
// before the keys cost memory. A key that was seen within the time that the
// Guard remembers is not new, whoever brings it.
//
// It keeps its counts in a Memory of its own and shares that one's bounds; when
// even that is full, unknown keys are taken for known ones. It is safe for
// concurrent use.
type Guard struct {
	memory       *Memory
	seen, minted *Limit
}

// NewGuard lets each source bring so many new keys as rate says, and takes a key
// for known for so long after it was first seen. Errors wrap ErrRate.
func NewGuard(rate Rate, remember time.Duration, o MemoryOptions) (*Guard, error) {
	if err := rate.Check(); err != nil {
		return nil, fmt.Errorf("new keys: %w", err)
	}
	once := Rate{Count: 1, Window: remember}
	if err := once.Check(); err != nil {
		return nil, fmt.Errorf("remember keys: %w", err)
	}
	return &Guard{
		memory: NewMemory(o),
		seen:   &Limit{Name: "seen", Rate: once},
		minted: &Limit{Name: "minted", Rate: rate},
	}, nil
}

// Admit reports whether source may bring key.
func (g *Guard) Admit(source, key Key) bool {
	ctx := context.Background()
	var room [2]Outcome
	d := Decision{Outcomes: room[:0]}
	claims := [...]Claim{{Limit: g.seen, Key: key, Cost: 1}, {Limit: g.minted, Key: source, Cost: 1}}
	if err := g.memory.Take(ctx, claims[:], &d); err != nil {
		return false // not with limits that were checked
	}
	known := !d.Outcomes[0].Allowed
	return known || d.Allowed
}
