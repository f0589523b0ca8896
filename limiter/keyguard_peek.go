package limiter

import "slices"

// Peek says what Admit would say, and changes nothing: no key is learnt, or known for
// longer, by it.
func (g *KeyGuard) Peek(rate Rate, source Key, keys ...Key) KeyDecision {
	now := g.clock().UnixMilli()
	if !slices.ContainsFunc(keys, func(k Key) bool { return !g.isKnown(now, k) }) {
		return KeyDecision{}
	}
	p := &g.sources[source[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	m, _ := p.seen.get(now, source)
	over := m.windowStart + rate.Window.Milliseconds()
	if now >= over || now < m.windowStart || m.count < rate.Count {
		return KeyDecision{New: true}
	}
	return KeyDecision{New: true, Refused: true, Wait: millis(over - now)}
}

// isKnown is knows that does not make the key known for longer.
func (g *KeyGuard) isKnown(now int64, k Key) bool {
	p := &g.known[k[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	_, found := p.seen.get(now, k)
	return found
}
