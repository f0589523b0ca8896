package config

import "github.com/weir-proxy/weir/limiter"

// scope parses the scope of a limit.
func (l *limits) scope(f *limitForm) limiter.Scope {
	scope, _ := limiter.ParseScope(f.Scope) // one of the enum, or already reported
	switch {
	case scope == limiter.Overall:
	case l.store != StoreRedis:
		l.Warn(&f.Scope, "with store: memory every Weir counts by itself anyway", "leave it out")
	default:
		l.Warn(&f.Scope, "each Weir has the whole rate: as many Weirs as there are let through so many times as much", "write overall, which holds for all of them together")
	}
	return scope
}
