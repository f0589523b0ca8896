package limiter

import "math/bits"

// A packedCount is a number of permits in 24 bits. The largest value means more than any
// limit has.
type packedCount [3]byte

// maxPackedCount is the largest value of a packedCount.
const maxPackedCount = 1<<24 - 1

func (p *packedCount) count() int64 {
	n := int64(p[0]) | int64(p[1])<<8 | int64(p[2])<<16
	if n == maxPackedCount {
		return MaxCount
	}
	return n
}

// add adds n, which may be negative. The largest value stays as it is.
func (p *packedCount) add(n int64) {
	if was := p.count(); was < maxPackedCount {
		n = min(was+n, maxPackedCount)
		p[0], p[1], p[2] = byte(n), byte(n>>8), byte(n>>16)
	}
}

// packHorizon stores the 11 highest bits of a horizon and a shift, rounding up by at most
// a thousandth.
func packHorizon(ms int64) uint16 {
	shift := max(0, bits.Len64(uint64(ms))-11)
	ms = (ms + 1<<shift - 1) >> shift
	if ms >= 1<<11 {
		ms, shift = ms>>1, shift+1
	}
	return uint16(shift<<11) | uint16(ms)
}

func unpackHorizon(packed uint16) int64 { return int64(packed&(1<<11-1)) << (packed >> 11) }
