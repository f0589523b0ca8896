package limiter

// An agingMap is a bounded map that keeps each entry for at least ttl after its last use,
// unless it is full. It has two generations. When the young generation is full or ttl has
// passed, it becomes the old one, and the previous old one is dropped as a whole. So
// eviction needs no scan, and a lookup costs at most two map accesses. Times are
// milliseconds and always arguments.
type agingMap[V any] struct {
	generationSize int // maximum number of keys in a generation, at least 1
	ttl            int64
	youngSince     int64 // when the young generation was started
	young, old     map[Key]V
}

// newAgingMap returns a map of at most capacity keys, or of two if capacity is smaller.
func newAgingMap[V any](capacity int, ttl int64) agingMap[V] {
	return agingMap[V]{generationSize: max(capacity/2, 1), ttl: ttl, young: map[Key]V{}}
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

// touch restarts the time to live of k and reports whether k has a value.
func (a *agingMap[V]) touch(now int64, k Key) (found bool) {
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

// put sets the value of k and restarts its time to live.
func (a *agingMap[V]) put(now int64, k Key, v V) {
	a.rotate(now)
	if _, found := a.young[k]; !found && len(a.young) >= a.generationSize {
		a.startGeneration(now)
	}
	a.young[k] = v
}

// rotate drops the generations that have expired.
func (a *agingMap[V]) rotate(now int64) {
	if now-a.youngSince < a.ttl && now >= a.youngSince { // now is earlier if the clock was set back
		return
	}
	bothExpired := now-a.youngSince >= 2*a.ttl
	a.startGeneration(now)
	if bothExpired {
		a.old = nil
	}
}

// startGeneration makes the young generation the old one and starts an empty one.
func (a *agingMap[V]) startGeneration(now int64) {
	a.youngSince, a.young, a.old = now, map[Key]V{}, a.young
}
