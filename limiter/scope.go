package limiter

import "fmt"

// A Scope says which of the processes that share a store count together.
type Scope uint8

const (
	// Overall counts what all clients of a store take together.
	Overall Scope = iota
	// PerClient counts for each client of a store by itself: every one has the
	// whole rate. A Memory is one client.
	PerClient
)

// String is the name that a configuration uses.
func (s Scope) String() string {
	switch s {
	case Overall:
		return "overall"
	case PerClient:
		return "per_client"
	}
	return fmt.Sprintf("scope %d", uint8(s))
}

// ParseScope reads what String writes. Errors wrap ErrInvalidLimit.
func ParseScope(name string) (Scope, error) {
	for s := Overall; s <= PerClient; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w: no scope is called %q; write overall or per_client", ErrInvalidLimit, name)
}
