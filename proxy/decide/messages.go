package decide

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/limit"
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
	limit    *limiter.Rate    // 2: a RateLimitOverride; its window is 0 for an unknown unit
	hits     uint64           // 3: a UInt64Value
	hasHits  bool             // it is there
	negative bool             // 4
}

// A code is a RateLimitResponse.Code.
type code uint64

const (
	codeOK        code = 1
	codeOverLimit code = 2
)

// An encoded is a RateLimitResponse: what it has is of a decision that has ended by the time it is sent.
type encoded []byte

// A codec encodes the messages of this file, and those of the health service.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) {
	if b, ok := v.(encoded); ok {
		return b, nil
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
	return protobuf.Decode(data, protobuf.Fields{
		1: &r.domain,
		2: func(b []byte) error {
			var d limitDescriptor
			err := d.unmarshal(b)
			r.descriptors = append(r.descriptors, d)
			return err
		},
		3: &r.hits,
	}, nil)
}

func (d *limitDescriptor) unmarshal(data []byte) error {
	return protobuf.Decode(data, protobuf.Fields{
		1: func(b []byte) error {
			var e route.DescriptorField
			err := protobuf.Decode(b, protobuf.Fields{1: &e.Key, 2: &e.Value}, nil)
			d.entries = append(d.entries, e)
			return err
		},
		2: func(b []byte) error {
			var count, unit uint64
			err := protobuf.Decode(b, protobuf.Fields{1: &count, 2: &unit}, nil)
			d.limit = &limiter.Rate{Count: int64(min(count, limiter.MaxCount))}
			if units := limit.RateLimitUnits(); unit < uint64(len(units)) {
				d.limit.Window = units[unit]
			}
			return err
		},
		3: func(b []byte) error {
			d.hasHits = true
			return protobuf.Decode(b, protobuf.Fields{1: &d.hits}, nil)
		},
		4: &d.negative,
	}, nil)
}

// answer returns the response that a, about those descriptors of r that ask, makes; its metadata may follow.
func (r *rateLimitRequest) answer(a *proxy.DescriptorAnswer) encoded {
	overall := codeOK
	if !a.Allowed {
		overall = codeOverLimit
	}
	b := protobuf.AppendNumber(make([]byte, 0, 512+len(a.Response.Body)), 1, uint64(overall))
	rest := a.Statuses
	for i := range r.descriptors {
		var s proxy.DescriptorStatus
		if !r.descriptors[i].reports() && len(rest) > 0 {
			s, rest = rest[0], rest[1:]
		}
		begun, at := protobuf.Begin(b, 2)
		b = protobuf.End(appendStatus(begun, &s), at)
	}
	b = appendFields(b, 3, a.Response.Fields) // response_headers_to_add
	b = appendFields(b, 4, a.Upstream)        // request_headers_to_add
	if len(a.Response.Body) > 0 {
		b = protobuf.AppendMessage(b, 5, a.Response.Body) // raw_body
	}
	return b
}

// appendFields appends HeaderValues. Envoy sets the length.
func appendFields(b []byte, field protowire.Number, all []respond.Field) []byte {
	for _, f := range all {
		if f.Name != "Content-Length" {
			begun, at := protobuf.Begin(b, field)
			b = protobuf.End(protobuf.AppendText(protobuf.AppendText(begun, 1, f.Name), 2, f.Value), at)
		}
	}
	return b
}

// appendStatus appends the fields of a DescriptorStatus.
func appendStatus(b []byte, s *proxy.DescriptorStatus) []byte {
	decided := codeOK
	if s.Refused {
		decided = codeOverLimit
	}
	b = protobuf.AppendNumber(b, 1, uint64(decided))
	if s.Limit == "" {
		return b
	}
	b, limit := protobuf.Begin(b, 2)
	b = protobuf.AppendNumber(b, 1, min(uint64(s.Rate.Count), math.MaxUint32))
	unit, multiplier := unitOf(s.Rate.Window)
	b = protobuf.AppendText(protobuf.AppendNumber(b, 2, unit), 3, s.Limit)
	if multiplier > 1 {
		begun, at := protobuf.Begin(b, 4)
		b = protobuf.End(protobuf.AppendNumber(begun, 1, multiplier), at)
	}
	b = protobuf.AppendNumber(protobuf.End(b, limit), 3, uint64(min(max(0, s.Remaining), math.MaxUint32)))
	b, reset := protobuf.Begin(b, 4)
	return protobuf.End(protobuf.AppendNumber(protobuf.AppendNumber(b, 1, uint64(s.Reset/time.Second)), 2,
		uint64(s.Reset%time.Second)), reset)
}

// unitOf returns a window as a unit of RateLimitResponse.RateLimit, the longest, and its multiple; 0 if it is a
// multiple of none.
func unitOf(window time.Duration) (unit, multiplier uint64) {
	longest := time.Duration(0)
	for number, length := range limit.RateLimitUnits() {
		if length > longest && window%length == 0 {
			unit, longest = uint64(number), length
		}
	}
	if unit == 0 {
		return 0, 0
	}
	return unit, uint64(window / longest)
}

// appendMetadata appends what Envoy's access log and other filters can read: the decision, and the limit with the
// fewest permits.
func appendMetadata(b encoded, a *proxy.DescriptorAnswer) encoded {
	b, at := protobuf.Begin(b, 6)
	b = appendText(b, "decision", decisionOf(&a.Answer))
	var least proxy.DescriptorStatus
	shadow := false
	for _, s := range a.Statuses {
		if s.Limit != "" && (least.Limit == "" || s.Remaining < least.Remaining) {
			least = s
		}
		shadow = shadow || s.Shadow
	}
	if least.Limit != "" {
		b = appendText(b, "limit", least.Limit)
		b = appendEntry(b, "remaining", func(b []byte) []byte {
			return protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type),
				math.Float64bits(float64(least.Remaining)))
		})
	}
	if shadow {
		b = appendEntry(b, "shadow", func(b []byte) []byte { return protobuf.AppendNumber(b, 4, 1) })
	}
	return protobuf.End(b, at)
}

// appendText appends an entry of a Struct that is a text.
func appendText(b []byte, name, value string) []byte {
	return appendEntry(b, name, func(b []byte) []byte {
		return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), value)
	})
}

// appendEntry appends an entry of a Struct, whose value is what append appends.
func appendEntry(b []byte, name string, value func([]byte) []byte) []byte {
	b, entry := protobuf.Begin(b, 1)
	b, at := protobuf.Begin(protobuf.AppendText(b, 1, name), 2)
	return protobuf.End(protobuf.End(value(b), at), entry)
}
