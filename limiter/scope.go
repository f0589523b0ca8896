package limiter

import "fmt"

// A Scope determines which of the processes that share a store count together.
type Scope uint8

// The scopes.
const (
	// Overall counts the permits of all clients of a store together.
	Overall Scope = iota
	// PerClient counts the permits of each client of a store separately, so that each has
	// the whole rate. A Memory is one client.
	PerClient
)

// String returns the name of s in configuration files.
func (s Scope) String() string {
	switch s {
	case Overall:
		return "overall"
	case PerClient:
		return "per_client"
	}
	return fmt.Sprintf("scope %d", uint8(s))
}

// ParseScope parses a name that String returns. Errors wrap ErrInvalidLimit.
func ParseScope(name string) (Scope, error) {
	for s := Overall; s <= PerClient; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown scope %q; write overall or per_client", ErrInvalidLimit, name)
}
