package upstream

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestRotation_SpreadsByWeight(t *testing.T) {
	for _, c := range []struct {
		weights []int
		want    []int
	}{
		{[]int{1}, []int{0, 0, 0}},
		{[]int{7}, []int{0, 0, 0}},
		{[]int{1, 1}, []int{0, 1, 0, 1}},
		{[]int{500, 500, 500}, []int{0, 1, 2, 0, 1, 2}},
		{[]int{5, 1, 1}, []int{0, 0, 1, 0, 2, 0, 0}},
		{[]int{2, 4}, []int{1, 0, 1, 1, 0, 1}},
	} {
		r := newRotation(c.weights)
		var got []int
		for range c.want {
			got = append(got, r.next())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("weights %v: turns %v, want %v", c.weights, got, c.want)
		}
	}
}

func TestRotation_NoTurnIsLostOrTakenTwice(t *testing.T) {
	weights := []int{3, 1, 1000, 6}
	r := newRotation(weights)
	counts := make([]atomic.Int64, len(weights))
	var wg sync.WaitGroup
	const rounds, workers = 2, 10 // 1010 turns a round, 2 rounds for each worker
	for range workers {
		wg.Go(func() {
			for range rounds * 1010 {
				counts[r.next()].Add(1)
			}
		})
	}
	wg.Wait()
	for i, w := range weights {
		if got := counts[i].Load(); got != int64(w*rounds*workers) {
			t.Errorf("target %d: %d turns, want %d", i, got, w*rounds*workers)
		}
	}
}
