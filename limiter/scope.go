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
		return "per_instance"
	}
	return fmt.Sprintf("scope %d", uint8(s))
}

// OldPerClient is another name of PerClient in configuration files, where a client is an HTTP client.
const OldPerClient = "per_client"

// ParseScope parses a name that String returns, or OldPerClient. Errors wrap ErrInvalidLimit.
func ParseScope(name string) (Scope, error) {
	if name == OldPerClient {
		return PerClient, nil
	}
	for s := Overall; s <= PerClient; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown scope %q; write overall or per_instance", ErrInvalidLimit, name)
}

// Share returns the part of l that each of n processes may grant on its own while they
// cannot count together: the n-th part of its permits, but at least 1. A limit with the
// scope PerClient is returned unchanged.
//
// Each process takes off what it has itself granted before. So a window in which they
// begin to count apart holds at most the sum over the processes of what each has granted,
// or its share if that is more: with L permits, at most L + (n-1) shares.
func (l *Limit) Share(n int) Limit {
	part, divisor := *l, l.processes(n)
	part.whole, part.parts = l, divisor
	part.Rate.Count = max(l.Rate.Count/divisor, 1)
	if l.Burst > 0 {
		part.Burst = max(l.Burst/divisor, 1)
	}
	return part
}

// shareOf returns this process's part of the permits that are left of the limit that l is a share of, or of l itself if
// it is none, when used are taken.
func (l *Limit) shareOf(used int64) int64 {
	whole, parts := l, int64(1)
	if l.whole != nil {
		whole, parts = l.whole, l.parts
	}
	return (max(0, whole.Capacity()-used) + parts - 1) / parts
}

// processes returns the number by which the permits of l are divided among n processes.
func (l *Limit) processes(n int) int64 {
	if l.Scope == PerClient {
		return 1
	}
	return int64(max(n, 1))
}
