package redisstore

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A part is the claims of a request that one script call can decide: one that
// names a limiter of Redisson's, and of the others those of one key in a cluster,
// all elsewhere.
type part struct {
	claims  []limiter.Claim
	indices []int // of the claims in the request
	limiter.Decision
}

// parts splits claims. The parts are sorted by key, so that two requests for the
// same keys come to them in the same order.
func (s *Store) parts(claims []limiter.Claim) []*part {
	var all []*part
	for i, c := range claims {
		at := slices.IndexFunc(all, func(p *part) bool { return s.partSlot(p.claims[0]) == s.partSlot(c) })
		if at < 0 {
			at = len(all)
			all = append(all, &part{})
		}
		all[at].claims = append(all[at].claims, c)
		all[at].indices = append(all[at].indices, i)
	}
	slices.SortFunc(all, func(a, b *part) int { return s.partSlot(a.claims[0]).compare(s.partSlot(b.claims[0])) })
	return all
}

// partSlot is where c is decided, together with all that has the same.
func (s *Store) partSlot(c limiter.Claim) slot {
	if !s.isCluster && c.RedissonName == "" {
		return slot{}
	}
	return slotOf(c)
}

func (h slot) compare(other slot) int {
	return cmp.Or(cmp.Compare(h.redisson, other.redisson), bytes.Compare(h.key[:], other.key[:]))
}

// isSinglePart reports whether claims make one part, without making it.
func (s *Store) isSinglePart(claims []limiter.Claim) bool {
	return !slices.ContainsFunc(claims, func(c limiter.Claim) bool { return s.partSlot(c) != s.partSlot(claims[0]) })
}
