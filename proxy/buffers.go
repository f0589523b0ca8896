package proxy

import (
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// errBuffersFull reports that buffered bodies use all the memory that is configured for them.
var errBuffersFull = errors.New("no memory left for buffered bodies")

const (
	// defaultMaxKeyBody is the default of the maximum length of a body from which a key is read.
	defaultMaxKeyBody = 64 << 10
	// initialBuffer is the memory that is reserved at first for a body that is long or of unknown
	// length. More is reserved as the body arrives.
	initialBuffer = 4 << 10
	// bufferShare is the fraction of the memory, 1/bufferShare, that the bodies of one client
	// address may use, so that one address cannot use it all.
	bufferShare = 8
)

// buffers limits the memory of all bodies that are buffered because a key is read from them. It is
// safe for concurrent use.
type buffers struct {
	most int64

	mu   sync.Mutex // guards what follows
	used int64
	by   map[netip.Prefix]int64 // bytes by client address; only addresses that use some
}

func newBuffers(most int64) *buffers { return &buffers{most: most, by: map[netip.Prefix]int64{}} }

// take reserves n bytes for a body that has reserved own bytes before, and reports whether they
// were available. A single body of an address may exceed the share of the address.
func (b *buffers) take(client netip.Prefix, own, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	its := b.by[client]
	if b.used+n > b.most || its > own && its+n > b.most/bufferShare {
		return false
	}
	b.used += n
	b.by[client] = its + n
	return true
}

func (b *buffers) give(client netip.Prefix, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.by[client] -= n; b.by[client] <= 0 {
		delete(b.by, client)
	}
}

// taken returns the number of reserved bytes.
func (b *buffers) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A buffer holds one body. Memory is reserved as the body arrives, so that a mere announcement of a
// long body costs nothing.
type buffer struct {
	all    *buffers
	client netip.Prefix
	taken  int64
}

// read reads r, which ends after at most most bytes, to its end. It returns errBuffersFull if no
// memory is left.
func (b *buffer) read(r io.Reader, most int64) ([]byte, error) {
	var read []byte
	for {
		if len(read) == cap(read) {
			// One byte more than the body has lets the end be found without growing.
			grown := max(min(max(initialBuffer, 2*int64(cap(read))), most+1), int64(cap(read))+1)
			if !b.all.take(b.client, b.taken, grown-int64(cap(read))) {
				return nil, errBuffersFull
			}
			b.taken += grown - int64(cap(read))
			read = append(make([]byte, 0, grown), read...)
		}
		n, err := r.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		switch {
		case errors.Is(err, io.EOF):
			return read, nil
		case err != nil:
			return nil, err
		}
	}
}

// free releases the memory. The bytes that were read must not be used afterwards.
func (b *buffer) free() {
	if b.taken > 0 {
		b.all.give(b.client, b.taken)
		b.taken = 0
	}
}

// watch registers the metric of the memory in use.
func (b *buffers) watch(r prometheus.Registerer) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_buffered_body_bytes", Help: "Memory used by request bodies that are buffered to read a key from them.",
	}, func() float64 { return float64(b.taken()) }))
}
