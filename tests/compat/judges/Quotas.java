import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Measures with Apache Kafka's own classes (test_quotas_as_kafka.py).
 *
 * A line of stdin is `rate|tokens QUOTA WINDOWS WINDOW_MS`, and then a time in milliseconds and a value, again and again.
 * The answer is a line with the throttle time after each of them, by the formulas of QuotaUtils and
 * ControllerMutationQuotaManager.
 */
class Quotas {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            double quota = Double.parseDouble(words[1]);
            MetricConfig config = new MetricConfig()
                .samples(Integer.parseInt(words[2]))
                .timeWindow(Long.parseLong(words[3]), TimeUnit.MILLISECONDS)
                .quota(Quota.upperBound(quota));
            boolean isRate = words[0].equals("rate");
            MeasurableStat stat = isRate ? new Rate() : new TokenBucket();
            StringBuilder answer = new StringBuilder();
            for (int i = 4; i < words.length; i += 2) {
                long now = Long.parseLong(words[i]);
                stat.record(config, Double.parseDouble(words[i + 1]), now);
                double value = stat.measure(config, now);
                answer.append(isRate ? rateMs((Rate) stat, config, value, quota, now) : owedMs(value, quota)).append(' ');
            }
            System.out.println(answer);
        }
    }

    static long rateMs(Rate rate, MetricConfig config, double value, double quota, long now) {
        return value <= quota ? 0 : Math.round((value - quota) / quota * rate.windowSize(config, now));
    }

    static long owedMs(double tokens, double quota) {
        return tokens >= 0 ? 0 : Math.round(-tokens / quota * 1000);
    }
}
