import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Commits transactions over all partitions of a topic: `Transactions BOOTSTRAP TOPIC PARTITIONS COUNT`. */
public class Transactions {
    public static void main(String[] arguments) {
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "transactional.id", "java",
            "key.serializer", serializer,
            "value.serializer", serializer);
        int partitions = Integer.parseInt(arguments[2]);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(arguments[1], partition, null, String.valueOf(number)));
                }
                producer.commitTransaction();
            }
        }
    }
}
