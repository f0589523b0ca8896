package limiter

import "slices"

// Peek returns the result that Admit would return, and changes nothing.
func (g *KeyGuard) Peek(rate Rate, source Key, keys ...Key) KeyDecision {
	now := g.clock().UnixMilli()
	if !slices.ContainsFunc(keys, func(k Key) bool { return !g.remembers(now, k) }) {
		return KeyDecision{}
	}
	p := &g.sources[source[0]%guardParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	m, _ := p.seen.get(now, source)
	over := m.since + rate.Window.Milliseconds()
	if now >= over || now < m.since || m.count < rate.Count {
		return KeyDecision{New: true}
	}
	return KeyDecision{New: true, Refused: true, Wait: millis(over - now)}
}

// remembers is like knows, without extending the time for which the key is known.
func (g *KeyGuard) remembers(now int64, k Key) bool {
	p := &g.known[k[0]%guardParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	_, found := p.seen.get(now, k)
	return found
}
