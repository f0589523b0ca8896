package proxy

import (
	"regexp"
	"sync"
	"testing"
)

func TestRequestIDs_NoTwoAreTheSame(t *testing.T) {
	var ids requestIDs
	var mu sync.Mutex
	seen := map[string]bool{}
	form := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				id := ids.next()
				mu.Lock()
				if seen[id] || !form.MatchString(id) {
					t.Errorf("id %q, seen before: %v", id, seen[id])
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var other requestIDs
	if id := other.next(); seen[id] {
		t.Errorf("another proxy has made %q too", id)
	}
}
