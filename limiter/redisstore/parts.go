package redisstore

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A part is a subset of a request's claims that one script call can decide: a claim of a
// limiter shared with Redisson, all other claims or, in a cluster, those of one key.
type part struct {
	claims  []limiter.Claim
	indices []int // of the claims in the request
	limiter.Decision
}

// parts splits claims. The parts are sorted by key, so that concurrent requests for the
// same keys take them in the same order.
func (s *Store) parts(claims []limiter.Claim) []*part {
	var all []*part
	for i, c := range claims {
		at := slices.IndexFunc(all, func(p *part) bool { return s.partSlot(&p.claims[0]) == s.partSlot(&c) })
		if at < 0 {
			at = len(all)
			all = append(all, &part{})
		}
		all[at].claims = append(all[at].claims, c)
		all[at].indices = append(all[at].indices, i)
	}
	slices.SortFunc(all, func(a, b *part) int { return s.partSlot(&a.claims[0]).compare(s.partSlot(&b.claims[0])) })
	return all
}

// partSlot returns the slot that identifies the part of c.
func (s *Store) partSlot(c *limiter.Claim) slot {
	if !s.isCluster && c.RedissonName == "" {
		return slot{}
	}
	return slotOf(c)
}

func (s slot) compare(other slot) int {
	return cmp.Or(cmp.Compare(s.redisson, other.redisson), bytes.Compare(s.key[:], other.key[:]))
}

// isSinglePart reports whether claims form a single part. It does not allocate.
func (s *Store) isSinglePart(claims []limiter.Claim) bool {
	for i := 1; i < len(claims); i++ {
		if s.partSlot(&claims[i]) != s.partSlot(&claims[0]) {
			return false
		}
	}
	return true
}
