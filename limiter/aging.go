package limiter

// An agingMap stores values for at least life, and for a bounded number of keys, in two
// generations: when the younger is full or older than life, the older one is dropped as a
// whole. It costs one or two lookups, and no sweep. Times are milliseconds, and always
// arguments.
type agingMap[V any] struct {
	most       int // keys of a generation, at least 1
	life       int64
	since      int64 // when the younger began
	young, old map[Key]V
}

// newAgingMap returns an agingMap for most keys in total, at least two.
func newAgingMap[V any](most int, life int64) agingMap[V] {
	return agingMap[V]{most: max(most/2, 1), life: life, young: map[Key]V{}}
}

// get returns the value of k.
func (a *agingMap[V]) get(now int64, k Key) (v V, found bool) {
	a.rotate(now)
	if v, found = a.young[k]; found {
		return v, true
	}
	v, found = a.old[k]
	return v, found
}

// keep renews the value of k, and reports whether there is one.
func (a *agingMap[V]) keep(now int64, k Key) (found bool) {
	a.rotate(now)
	if _, found = a.young[k]; found {
		return true
	}
	v, found := a.old[k]
	if found {
		a.put(now, k, v)
	}
	return found
}

// put stores v for k.
func (a *agingMap[V]) put(now int64, k Key, v V) {
	a.rotate(now)
	if _, found := a.young[k]; !found && len(a.young) >= a.most {
		a.begin(now)
	}
	a.young[k] = v
}

// rotate drops the older generation if it is due.
func (a *agingMap[V]) rotate(now int64) {
	if now-a.since < a.life && now >= a.since { // or the clock was set back
		return
	}
	over := now-a.since >= 2*a.life
	a.begin(now)
	if over {
		a.old = nil
	}
}

// begin makes the younger generation the older one, and starts a new one.
func (a *agingMap[V]) begin(now int64) { a.since, a.young, a.old = now, map[Key]V{}, a.young }
