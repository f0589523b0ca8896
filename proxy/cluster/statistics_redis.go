package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed report.lua
	reportScript string
	//go:embed sum.lua
	sumScript string
)

// maxChangedMinutes is how many minutes are added up in one run; the rest
// follows.
const maxChangedMinutes = 100

// redisStatistics stores the statistics of a cluster.
type redisStatistics struct {
	rdb    redis.UniversalClient
	prefix string
	fence  fence

	reported, summed *redis.Script
}

func newRedisStatistics(rdb redis.UniversalClient, prefix string) *redisStatistics {
	p := prefix + ":{cluster}:"
	return &redisStatistics{rdb, p, fence{rdb, p + "leader"}, redis.NewScript(reportScript), fenced(sumScript)}
}

// minuteKey returns the key of the reports of a minute.
func (s *redisStatistics) minuteKey(minute int64) string {
	return s.prefix + "minute:" + strconv.FormatInt(minute, 10)
}

// total returns the key of the sum of a minute.
func (s *redisStatistics) total(minute int64) string {
	return s.prefix + "statistics:" + strconv.FormatInt(minute, 10)
}

func (s *redisStatistics) open() string { return s.prefix + "minutes" }

// now implements statisticsStore.
func (s *redisStatistics) now(ctx context.Context) (time.Time, error) {
	return s.rdb.Time(ctx).Result()
}

// report implements statisticsStore.
func (s *redisStatistics) report(ctx context.Context, node string, minute int64, r minuteReport) (time.Time, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return time.Time{}, err
	}
	reply, err := s.reported.Run(ctx, s.rdb, []string{s.minuteKey(minute), s.open()}, minute, node, text, minuteOpenFor.Milliseconds()).Int64Slice()
	switch {
	case err != nil:
		return time.Time{}, err
	case len(reply) != 2:
		return time.Time{}, errReply
	case reply[1] == 0:
		err = errClosed
	}
	return time.UnixMilli(reply[0]), err
}

// reports implements statisticsStore.
func (s *redisStatistics) reports(ctx context.Context, minute int64) (map[string]minuteReport, error) {
	texts, err := s.rdb.HGetAll(ctx, s.minuteKey(minute)).Result()
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	all := make(map[string]minuteReport, len(texts))
	for node, text := range texts {
		var r minuteReport
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return nil, fmt.Errorf("read reports: %w: %w", errReply, err)
		}
		all[node] = r
	}
	return all, nil
}

// changed implements statisticsStore.
func (s *redisStatistics) changed(ctx context.Context) ([]revision, error) {
	minutes, err := s.rdb.ZRangeWithScores(ctx, s.open(), 0, maxChangedMinutes-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read changed minutes: %w", err)
	}
	all := make([]revision, len(minutes))
	for i, z := range minutes {
		text, _ := z.Member.(string)
		minute, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read changed minutes: %w: %w", errReply, err)
		}
		all[i] = revision{minute, z.Score}
	}
	return all, nil
}

// sum implements statisticsStore.
func (s *redisStatistics) sum(ctx context.Context, t Term, of revision, sum []Tally) error {
	text, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	change := strconv.FormatFloat(of.change, 'f', -1, 64)
	_, err = s.fence.run(ctx, s.summed, t, []string{s.total(of.minute), s.open()}, of.minute, text, StatisticsRetention.Milliseconds(), change)
	if err != nil {
		return fmt.Errorf("write a sum: %w", err)
	}
	return nil
}

// sums implements statisticsStore.
func (s *redisStatistics) sums(ctx context.Context, first, last int64) ([][]Tally, error) {
	var keys []string
	for m := first; m <= last; m++ {
		keys = append(keys, s.total(m))
	}
	texts, err := s.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("read statistics: %w", err)
	}
	all := make([][]Tally, len(texts))
	for i, v := range texts {
		text, there := v.(string)
		if !there {
			continue
		}
		if err := json.Unmarshal([]byte(text), &all[i]); err != nil {
			return nil, fmt.Errorf("read statistics: %w: %w", errReply, err)
		}
	}
	return all, nil
}
