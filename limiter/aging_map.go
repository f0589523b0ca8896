package limiter

// agingMap remember something of each key for a life at least, and of so many keys at
// most: in two generations, of which the older is forgotten as a whole when the
// younger is full or has lasted for a life. It costs a lookup or two, and no
// sweep. Times are milliseconds and always arguments.
type agingMap[V any] struct {
	generationSize int // keys of a generation, at least 1
	ttl            int64
	youngSince     int64 // when the younger began
	young, old     map[Key]V
}

// newAgingMap makes room for so many keys in all; for two at least.
func newAgingMap[V any](most int, life int64) agingMap[V] {
	return agingMap[V]{generationSize: max(most/2, 1), ttl: life, young: map[Key]V{}}
}

// get is what is remembered of k.
func (a *agingMap[V]) get(now int64, k Key) (v V, found bool) {
	a.rotate(now)
	if v, found = a.young[k]; found {
		return v, true
	}
	v, found = a.old[k]
	return v, found
}

// touch makes what is remembered of k last, and reports whether there is anything.
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

// put remembers v of k from now on.
func (a *agingMap[V]) put(now int64, k Key, v V) {
	a.rotate(now)
	if _, found := a.young[k]; !found && len(a.young) >= a.generationSize {
		a.startGeneration(now)
	}
	a.young[k] = v
}

// rotate lets those go that have lived.
func (a *agingMap[V]) rotate(now int64) {
	if now-a.youngSince < a.ttl && now >= a.youngSince { // or the clock was set back
		return
	}
	over := now-a.youngSince >= 2*a.ttl
	a.startGeneration(now)
	if over {
		a.old = nil
	}
}

// startGeneration makes the younger generation the older one.
func (a *agingMap[V]) startGeneration(now int64) {
	a.youngSince, a.young, a.old = now, map[Key]V{}, a.young
}
