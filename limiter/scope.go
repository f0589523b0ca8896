package limiter

import "fmt"

// A Scope determines which of the processes that share a store count together.
type Scope uint8

const (
	// Overall counts the permits of all clients of a store together.
	Overall Scope = iota
	// PerClient counts separately for each client of a store, with the full rate for each.
	// A Memory is one client.
	PerClient
)

// String returns the name used in configurations.
func (s Scope) String() string {
	switch s {
	case Overall:
		return "overall"
	case PerClient:
		return "per_client"
	}
	return fmt.Sprintf("scope %d", uint8(s))
}

// ParseScope parses the result of String. Errors wrap ErrLimit.
func ParseScope(name string) (Scope, error) {
	for s := Overall; s <= PerClient; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w: no scope is called %q; write overall or per_client", ErrLimit, name)
}
