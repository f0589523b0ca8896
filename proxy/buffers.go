package proxy

import (
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// errBuffersFull reports that bodies take all the memory that they may.
var errBuffersFull = errors.New("memory for request bodies exhausted")

const (
	// defaultMaxKeyBody is how long a body may be that a key is read from, where its route
	// does not say.
	defaultMaxKeyBody = 64 << 10
	// initialBuffer is what is taken for a body whose length is not known or long: the
	// rest when it comes.
	initialBuffer = 4 << 10
	// bufferShare is the part of the memory for bodies that those of one client
	// address may take, so that no address alone leaves nothing to others.
	bufferShare = 8
)

// buffers bound the memory of all bodies that are kept because a key is read from
// them.
type buffers struct {
	most int64

	mu   sync.Mutex // guards what follows
	used int64
	by   map[netip.Prefix]int64 // by client address; only of those that use some
}

func newBuffers(most int64) *buffers { return &buffers{most: most, by: map[netip.Prefix]int64{}} }

// take takes n bytes for a body that has own bytes already, and reports whether they
// were there. The only body of an address may use more than the address's share.
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

// taken is how much is in use.
func (b *buffers) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A buffer keeps one body. Its memory is taken as the body comes, so that what is
// only announced costs nobody anything.
type buffer struct {
	all    *buffers
	client netip.Prefix
	taken  int64
}

// read reads r, which ends after most bytes, to its end. errBuffersFull reports that
// there was no memory left.
func (b *buffer) read(r io.Reader, most int64) ([]byte, error) {
	var read []byte
	for {
		if len(read) == cap(read) {
			// With a byte more than there can be the end is found without growing.
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

// free gives the memory back; nobody may use what was read any more.
func (b *buffer) free() {
	if b.taken > 0 {
		b.all.give(b.client, b.taken)
		b.taken = 0
	}
}

// watch shows in the figures how much of b is in use.
func (b *buffers) watch(r prometheus.Registerer) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_buffered_body_bytes", Help: "Memory used by request bodies that are buffered to read a key from them.",
	}, func() float64 { return float64(b.taken()) }))
}
