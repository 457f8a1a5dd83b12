package org.bertzoo.sample

import java.io.File
import org.json.JSONArray
import org.junit.Assert.assertEquals
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test

/** Tests of rows and entities on random texts with drawn logits, which examples/tokens.py wrote with bertzoo's answers. */
class EntitiesTest {
    private val file = System.getenv("BERTZOO_FILE") ?: "src/main/assets/model.tflite"
    private val json = File("$file.json").readText()
    private val vocabulary = File("$file.files", "vocab.txt").readText()

    @Test
    fun `entities equal entities json`() {
        val finder = EntityFinder(json, vocabulary)
        val cases = JSONArray(File("$file.files", "entities.json").readText())
        var found = 0
        for (case in List(cases.length(), cases::getJSONObject)) {
            val text = case.getString("text")
            val rows = finder.rows(text)
            assertEquals(text, case.getJSONArray("rows").lists().map { row -> row.map(Double::toInt) }, rows.windows.map { it.ids })
            val outputs = case.getJSONArray("logits").lists().map { row -> FloatArray(row.size) { row[it].toFloat() } }
            val entities = finder.entities(rows, outputs)
            val expected = case.getJSONArray("entities").let { all -> List(all.length(), all::getJSONObject) }
            assertEquals(text, expected.map { it.getString("label") to it.getString("text") },
                entities.map { it.label to text.substring(it.start, it.end) })
            for ((entity, answer) in entities.zip(expected)) {
                assertEquals(text.offsetByCodePoints(0, answer.getInt("start")), entity.start) // Python counts code points
                assertEquals(text.offsetByCodePoints(0, answer.getInt("end")), entity.end)
                assertEquals(answer.getDouble("score"), entity.score, 1e-5)
            }
            found += entities.size
        }
        assertTrue(found > 100)
    }

    @Test
    fun `a file without entities is an error`() {
        assertThrows(IllegalStateException::class.java) { EntityFinder(json.replace("\"entities\"", "\"tokens\""), vocabulary) }
    }
}

private fun JSONArray.lists(): List<List<Double>> =
    List(length()) { row -> getJSONArray(row).let { all -> List(all.length(), all::getDouble) } }
