package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter/redisstore"
)

// watch checks the store every second. It logs when the store becomes unreachable or reachable, when
// another field of the configuration is the reason, and when Redis may evict counts.
func (s store) watch(ctx context.Context, log zerolog.Logger) {
	tick := time.NewTicker(connectTimeout)
	defer tick.Stop()
	var field, warning string
	away := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := s.check(ctx)
		if err != nil {
			if f := faultOf(err); (!away || f.field != field) && ctx.Err() == nil {
				logUnusable(log, err)
				field = f.field
			}
			away = true
			continue
		}
		if away {
			log.Info().Msg("redis reachable")
		}
		if now != warning && now != "" {
			log.Warn().Str("problem", now).Msg("redis may evict counts")
		}
		away, warning = false, now
	}
}

// A redisFault is a reason why Redis cannot be used that only an operator can remove. It is zero if
// Redis is unreachable for another reason.
type redisFault struct {
	field string // of the configuration
	hint  string
}

// logUnusable logs that the store cannot be used, at level error if it will not become usable by
// itself.
func logUnusable(log zerolog.Logger, err error) {
	f := faultOf(err)
	if f.field == "" {
		e := log.Warn().Err(err)
		if errors.Is(err, redisstore.ErrTLS) { // it was connected to
			e.Str("field", "redis.tls").Str("hint", "redis does not answer to TLS; leave redis.tls out if it has none")
		}
		e.Msg("redis unreachable; limits go by on_store_failure")
		return
	}
	log.Error().Err(err).Str("field", f.field).Str("hint", f.hint).Msg("redis refused; limits go by on_store_failure")
}

// faultOf returns the fault that err reports. The names of errors are those of Redis.
func faultOf(err error) redisFault {
	login := "redis."
	if strings.Contains(err.Error(), "all sentinels") { // the client's words when no sentinel can be asked
		login = "redis.sentinel."
	}
	why := redisstore.WhyNotWritable(err)
	switch {
	case why != "":
		return redisFault{"redis.addrs", "redis replies and refuses writes: " + why}
	case errors.Is(err, redisstore.ErrMode):
		return redisFault{"redis.mode", "write the mode in which redis is deployed: single, sentinel or cluster"}
	case errors.Is(err, redisstore.ErrTLS) && !errors.Is(err, context.DeadlineExceeded):
		return redisFault{"redis.tls", "check that redis uses TLS, and both certificates"}
	case redis.HasErrorPrefix(err, "NOAUTH"):
		return redisFault{login + "password", "redis requires a password"}
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "ERR AUTH"):
		return redisFault{login + "password", "redis does not accept the user with this password"}
	case redis.HasErrorPrefix(err, "NOPERM"):
		return redisFault{login + "username", "the user lacks a right; see Redis in the reference"}
	}
	return redisFault{}
}
