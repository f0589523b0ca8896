package decide

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/protobuf"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/route"
)

// The messages of envoy.service.ratelimit.v3. Their Go package would bring all configuration types of
// Envoy: 3 MB of binary, and 1 MB of memory for everyone who runs Weir.

// A rateLimitRequest is a RateLimitRequest.
type rateLimitRequest struct {
	domain      string            // 1
	descriptors []limitDescriptor // 2
	hits        uint64            // 3
}

// A limitDescriptor is a RateLimitDescriptor.
type limitDescriptor struct {
	entries  route.Descriptor // 1
	hits     uint64           // 3: a UInt64Value; 0 if it is not there
	override bool             // 2: it has a limit of its own
	negative bool             // 4
}

// A rateLimitResponse is a RateLimitResponse.
type rateLimitResponse struct {
	overall  code               // 1
	statuses []descriptorStatus // 2
	toClient []respond.Field    // 3: response_headers_to_add
	upstream []respond.Field    // 4: request_headers_to_add
	body     []byte             // 5: raw_body
	metadata []byte             // 6: a Struct, encoded
}

// A code is a RateLimitResponse.Code.
type code uint64

const (
	codeOK        code = 1
	codeOverLimit code = 2
)

// A descriptorStatus is a RateLimitResponse.DescriptorStatus.
type descriptorStatus struct {
	code      code          // 1
	name      string        // 2.3
	rate      limiter.Rate  // 2.1 and 2.2
	remaining uint64        // 3
	reset     time.Duration // 4
}

// A codec encodes the messages of this file, and those of the health service.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) {
	if m, ok := v.(*rateLimitResponse); ok {
		return m.marshal(), nil
	}
	return proto.Marshal(v.(proto.Message))
}

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(data []byte, v any) error {
	if m, ok := v.(*rateLimitRequest); ok {
		return m.unmarshal(data)
	}
	return proto.Unmarshal(data, v.(proto.Message))
}

func (r *rateLimitRequest) unmarshal(data []byte) error {
	return protobuf.EachField(data, func(f protobuf.Field) error {
		switch f.Number {
		case 1:
			r.domain = string(f.Bytes)
		case 2:
			var d limitDescriptor
			if err := d.unmarshal(f.Bytes); err != nil {
				return err
			}
			r.descriptors = append(r.descriptors, d)
		case 3:
			r.hits = f.Varint
		}
		return nil
	})
}

func (d *limitDescriptor) unmarshal(data []byte) error {
	return protobuf.EachField(data, func(f protobuf.Field) error {
		switch f.Number {
		case 1:
			var e route.DescriptorField
			err := protobuf.EachField(f.Bytes, func(f protobuf.Field) error {
				switch f.Number {
				case 1:
					e.Key = string(f.Bytes)
				case 2:
					e.Value = string(f.Bytes)
				}
				return nil
			})
			d.entries = append(d.entries, e)
			return err
		case 2:
			d.override = true
		case 3:
			return protobuf.EachField(f.Bytes, func(f protobuf.Field) error {
				d.hits = f.Varint
				return nil
			})
		case 4:
			d.negative = f.Varint != 0
		}
		return nil
	})
}

func (r *rateLimitResponse) marshal() []byte {
	b := protobuf.AppendNumber(nil, 1, uint64(r.overall))
	for i := range r.statuses {
		b = protobuf.AppendMessage(b, 2, r.statuses[i].marshal())
	}
	for _, f := range r.toClient {
		b = protobuf.AppendMessage(b, 3, protobuf.AppendText(protobuf.AppendText(nil, 1, f.Name), 2, f.Value))
	}
	for _, f := range r.upstream {
		b = protobuf.AppendMessage(b, 4, protobuf.AppendText(protobuf.AppendText(nil, 1, f.Name), 2, f.Value))
	}
	if len(r.body) > 0 {
		b = protobuf.AppendMessage(b, 5, r.body)
	}
	if len(r.metadata) > 0 {
		b = protobuf.AppendMessage(b, 6, r.metadata)
	}
	return b
}

func (s *descriptorStatus) marshal() []byte {
	b := protobuf.AppendNumber(nil, 1, uint64(s.code))
	if s.name == "" {
		return b
	}
	limit := protobuf.AppendNumber(nil, 1, min(uint64(s.rate.Count), math.MaxUint32))
	unit, multiplier := unitOf(s.rate.Window)
	limit = protobuf.AppendText(protobuf.AppendNumber(limit, 2, unit), 3, s.name)
	if multiplier > 1 {
		limit = protobuf.AppendMessage(limit, 4, protobuf.AppendNumber(nil, 1, multiplier))
	}
	b = protobuf.AppendNumber(protobuf.AppendMessage(b, 2, limit), 3, min(s.remaining, math.MaxUint32))
	reset := protobuf.AppendNumber(protobuf.AppendNumber(nil, 1, uint64(s.reset/time.Second)), 2, uint64(s.reset%time.Second))
	return protobuf.AppendMessage(b, 4, reset)
}

// unitOf returns a window as a unit of RateLimitResponse.RateLimit and its multiple; 0 if it is a
// multiple of none.
func unitOf(window time.Duration) (unit, multiplier uint64) {
	for _, u := range []struct {
		number uint64
		length time.Duration
	}{{7, 7 * 24 * time.Hour}, {4, 24 * time.Hour}, {3, time.Hour}, {2, time.Minute}, {1, time.Second}} {
		if window%u.length == 0 {
			return u.number, uint64(window / u.length)
		}
	}
	return 0, 0
}

// The values of a Struct.

func appendStructNumber(b []byte, name string, value float64) []byte {
	return protobuf.AppendMessage(b, 1, protobuf.AppendMessage(protobuf.AppendText(nil, 1, name), 2, protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), math.Float64bits(value))))
}

func appendStructText(b []byte, name, value string) []byte {
	text := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), value)
	return protobuf.AppendMessage(b, 1, protobuf.AppendMessage(protobuf.AppendText(nil, 1, name), 2, text))
}

func appendStructTrue(b []byte, name string) []byte {
	return protobuf.AppendMessage(b, 1, protobuf.AppendMessage(protobuf.AppendText(nil, 1, name), 2, protobuf.AppendNumber(nil, 4, 1)))
}
