package proxy

import (
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// errBuffersFull reports that buffered bodies use all the memory that is configured for them.
var errBuffersFull = errors.New("memory for request bodies exhausted")

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

// bufferBudget limits the memory of all bodies that are buffered because a key is read from them. It is
// safe for concurrent use.
type bufferBudget struct {
	max int64

	mu       sync.Mutex // guards what follows
	used     int64
	byClient map[netip.Prefix]int64 // bytes by client address; only addresses that use some
}

func newBufferBudget(maxBytes int64) *bufferBudget {
	return &bufferBudget{max: maxBytes, byClient: map[netip.Prefix]int64{}}
}

// reserve reserves n bytes for a body that has reserved own bytes before, and reports whether they
// were available. A single body of an address may exceed the share of the address.
func (b *bufferBudget) reserve(client netip.Prefix, own, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	clientBytes := b.byClient[client]
	if b.used+n > b.max || clientBytes > own && clientBytes+n > b.max/bufferShare {
		return false
	}
	b.used += n
	b.byClient[client] = clientBytes + n
	return true
}

func (b *bufferBudget) release(client netip.Prefix, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.byClient[client] -= n; b.byClient[client] <= 0 {
		delete(b.byClient, client)
	}
}

// inUse returns the number of reserved bytes.
func (b *bufferBudget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A bodyBuffer holds one body. Memory is reserved as the body arrives, so that a mere announcement of a
// long body costs nothing.
type bodyBuffer struct {
	budget   *bufferBudget
	client   netip.Prefix
	reserved int64
}

// readAll reads r, which has at most maxBytes bytes, to its end. It returns errBuffersFull if no
// memory is left.
func (b *bodyBuffer) readAll(r io.Reader, maxBytes int64) ([]byte, error) {
	var read []byte
	for {
		if len(read) == cap(read) {
			// One byte more than the body has lets the end be found without growing.
			grown := max(min(max(initialBuffer, 2*int64(cap(read))), maxBytes+1), int64(cap(read))+1)
			if !b.budget.reserve(b.client, b.reserved, grown-int64(cap(read))) {
				return nil, errBuffersFull
			}
			b.reserved += grown - int64(cap(read))
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

// release releases the memory. The bytes that were read must not be used afterwards.
func (b *bodyBuffer) release() {
	if b.reserved > 0 {
		b.budget.release(b.client, b.reserved)
		b.reserved = 0
	}
}

// register registers the metric of the memory in use.
func (b *bufferBudget) register(r prometheus.Registerer) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_buffered_body_bytes", Help: "Memory used by request bodies that are buffered to read a key from them.",
	}, func() float64 { return float64(b.inUse()) }))
}
