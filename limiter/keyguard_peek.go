package limiter

import "slices"

// Peek returns what Admit would return, without changing anything: it neither adds keys
// nor restarts their time to live.
func (g *KeyGuard) Peek(rate Rate, source Key, keys ...Key) KeyDecision {
	now := g.clock().UnixMilli()
	if !slices.ContainsFunc(keys, func(k Key) bool { return !g.isKnown(now, k) }) {
		return KeyDecision{}
	}
	p := &g.sources[source[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	m, _ := p.seen.get(now, source)
	windowEnd := m.windowStart + rate.Window.Milliseconds()
	if now >= windowEnd || now < m.windowStart || m.count < rate.Count {
		return KeyDecision{New: true}
	}
	return KeyDecision{New: true, Refused: true, Wait: millis(windowEnd - now)}
}

// isKnown reports whether k is known, without restarting its time to live.
func (g *KeyGuard) isKnown(now int64, k Key) bool {
	p := &g.known[k[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	_, found := p.seen.get(now, k)
	return found
}
